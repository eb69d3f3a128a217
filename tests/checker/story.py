"""The shortest story of an event: what happened to it, in the order of time, and what was broken meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime

from tests.checker.facts import Commit, Outcome, Place
from tests.checker.findings import Finding
from tests.checker.log import ATTEMPTS, DISPOSITION, DLQ_ID, GroupLog
from tests.checker.windows import SLACK_SECONDS

MOST_LINES = 40
COMMITS = " commits "

Moment = tuple[float, str]


def tell(log: GroupLog, finding: Finding) -> list[str]:
    """Return one line per moment, those of the finding's event and of its partition."""
    event_id = finding.event_id
    moments = sorted(_moments(log, event_id, finding.place))
    if not moments:
        return []
    first, last = moments[0][0], moments[-1][0]
    # A commit before it may lie far back, and what was broken then has no part in it either.
    since = min((at for at, what in moments if COMMITS not in what), default=first)
    # An event waits in vain for ever: what broke long after its last moment has no part in it.
    moments += [
        (fault.began, f"FAULT {fault}")
        for fault in log.facts.faults
        if fault.group in ("", log.group.name)
        and fault.began <= last + SLACK_SECONDS
        and fault.ended >= since - SLACK_SECONDS
    ]
    moments.sort()
    if len(moments) > MOST_LINES:
        left_out = len(moments) - MOST_LINES
        half = MOST_LINES // 2
        gap = (moments[half][0], f"… {left_out} more …")
        moments = [*moments[:half], gap, *moments[-half:]]
    return [f"{_clock(at)} +{at - first:7.3f} s  {what}" for at, what in moments]


def _moments(log: GroupLog, event_id: str, place: Place | None) -> Iterator[Moment]:
    places = {place} if place else set()
    if event_id:
        places |= {record.place for record in log.facts.published().get(event_id, [])}
        places |= {copy.record.place for copy in log.copies_of.get(event_id, [])}
        yield from _of_event(log, event_id)
    for record in log.facts.records.get(log.facts.source, ()):
        if record.place in places:
            yield record.at, f"published at {record.place}"
    for one in places:
        yield from _commits(log, one)


def _of_event(log: GroupLog, event_id: str) -> Iterator[Moment]:
    group = log.group
    for row in log.facts.outbox or ():
        if row.event_id == event_id:
            yield row.created_at, f"stored as version {row.version} of order {row.order_id}"
    for copy in log.copies_of.get(event_id, []):
        told = [f"attempts {copy.record.header(ATTEMPTS)}", f"from {copy.origin}"]
        if copy.dead:
            told += [str(copy.record.header(DISPOSITION)), f"dlq.id {copy.record.header(DLQ_ID)}"]
        yield copy.record.at, f"copied to {copy.record.place} ({', '.join(told)})"
    for run in group.runs or ():
        if run.event_id == event_id:
            yield run.at, f"{group.name} runs attempt {run.attempt} of {run.place}"
    for effect in log.effects.get(event_id, []):
        what = "begins" if effect.outcome is Outcome.BEGUN else effect.outcome.value
        yield effect.at, f"{group.name}: {effect.what} {what}"


def _commits(log: GroupLog, place: Place) -> Iterator[Moment]:
    """The last commit before the record, the first past it, and each that went back behind it."""
    before: Commit | None = None
    past = False
    for commit in log.group.commits:
        if commit.partition != (place.topic, place.partition):
            continue
        if (commit.offset > place.offset) == past:
            before = commit
            continue
        past = not past
        if before is not None:
            yield before.at, f"{log.group.name}{COMMITS}{place.topic}:{place.partition} at {before.offset}"
        yield commit.at, f"{log.group.name}{COMMITS}{place.topic}:{place.partition} at {commit.offset}"
        before = None


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
