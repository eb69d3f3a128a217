"""Copies: byte-equal, in the same partition, one identity per death, never early, no more attempts than there are."""

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.facts import Run
from tests.checker.findings import Finding
from tests.checker.log import ATTEMPTS, DISPOSITION, DLQ_ID, STAGE, Copy, GroupLog, foreign_headers
from tests.checker.windows import Windows, gaps

# Kafka's times are whole milliseconds, cut off.
CLOCK_SECONDS = 0.005


def check(log: GroupLog) -> Iterator[Finding]:
    windows = Windows(log.facts.faults, log.group.name, log.group.lease)
    yield from _equal(log)
    yield from _deaths(log)
    yield from _counted(log)
    yield from _twice_copied(log, windows)
    yield from _ran(log, windows)
    yield from _early_copies(log)
    yield from _early_runs(log)


def _equal(log: GroupLog) -> Iterator[Finding]:
    name = log.group.name
    source = {record.place: record for record in log.facts.records.get(log.facts.source, ())}
    for copy in log.copies:
        event_id, place, first = log.event_of(copy), copy.record.place, source.get(copy.origin)
        if first is None:
            yield Finding("byte-equal", name, event_id, f"is a copy of {copy.origin}, where no record stands", place)
            continue
        if place.partition != first.place.partition:
            yield Finding("byte-equal", name, event_id, f"stood in partition {first.place.partition}", place)
        wrong = [
            what
            for what, here, there in (
                ("key", copy.record.key, first.key),
                ("value", copy.record.value, first.value),
                ("headers", foreign_headers(copy.record), foreign_headers(first)),
            )
            if here != there
        ]
        if wrong:
            yield Finding("byte-equal", name, event_id, f"is copied with another {', '.join(wrong)}", place)


def _deaths(log: GroupLog) -> Iterator[Finding]:
    owners: dict[str, tuple[str, int]] = {}
    ids: dict[tuple[str, int], str] = {}
    for copy in log.copies:
        if not copy.dead:
            continue
        place, dlq_id = copy.record.place, copy.record.header(DLQ_ID)
        event_id = log.event_of(copy)
        death = (event_id or str(copy.origin), copy.replays)
        if not dlq_id:
            yield Finding("one dlq.id per death", log.group.name, event_id, "is dead without a dlq.id", place)
        elif ids.setdefault(death, dlq_id) != dlq_id:
            yield Finding("one dlq.id per death", log.group.name, event_id, "has two dlq.ids for one death", place)
        elif owners.setdefault(dlq_id, death) != death:
            yield Finding("one dlq.id per death", log.group.name, event_id, "shares its dlq.id with another", place)


def _counted(log: GroupLog) -> Iterator[Finding]:
    """What the copies say of their attempts."""
    name, budget = log.group.name, log.group.budget
    for copy in log.copies:
        event_id, place = log.event_of(copy), copy.record.place
        if copy.attempts < 0 or copy.attempts > budget or (not copy.dead and copy.attempts >= budget):
            told = copy.record.header(ATTEMPTS)
            yield Finding("attempts", name, event_id, f"is counted at {told} attempts of {budget}", place)
        if copy.dead and copy.record.header(DISPOSITION) == "EXHAUSTED" and copy.attempts != budget:
            yield Finding("attempts", name, event_id, f"is exhausted after {copy.attempts} of {budget}", place)


def _twice_copied(log: GroupLog, windows: Windows) -> Iterator[Finding]:
    """Compare copies of one source record: an event that stands there twice may have copies of each."""
    hops: dict[tuple[object, ...], list[Copy]] = defaultdict(list)
    for copy in log.copies:
        hops[copy.origin, copy.hop, copy.dead].append(copy)
    for same in hops.values():
        for began, ended in gaps(copy.record.at for copy in same):
            if windows.copied(began, ended) is None:
                last = same[-1]
                how = f"has two copies of one hop, {ended - began:.2f} s apart, and no fault explains it"
                yield Finding("attempts", log.group.name, log.event_of(last), how, last.record.place)
                break


def _ran(log: GroupLog, windows: Windows) -> Iterator[Finding]:
    """What the handlers themselves counted."""
    name, budget = log.group.name, log.group.budget
    for event_id, runs in _runs(log).items():
        by_attempt: dict[int, list[float]] = defaultdict(list)
        for run in runs:
            by_attempt[run.attempt].append(run.at)
        if max(by_attempt) > budget:
            yield Finding("attempts", name, event_id, f"ran a {max(by_attempt)}th time, {budget} are allowed")
        for attempt, times in by_attempt.items():
            for began, ended in gaps(times):
                if windows.repeated(began, ended) is None:
                    how = f"ran attempt {attempt} twice, {ended - began:.2f} s apart, and no fault explains it"
                    yield Finding("attempts", name, event_id, how)
                    break


def _early_copies(log: GroupLog) -> Iterator[Finding]:
    """A copy's attempt began when the copy before it was due, so it cannot stand in a topic before that."""
    for event_id, copies in log.copies_of.items():
        due: dict[tuple[int, int], float] = {}
        for copy in copies:
            if not copy.dead:
                at = copy.record.at + copy.delay
                due[copy.hop] = min(at, due.get(copy.hop, at))
        for copy in copies:
            ran = copy.record.header(STAGE) == "HANDLE"
            before = (copy.replays, copy.attempts + copy.rounds - ran)
            if before in due and copy.record.at < due[before] - CLOCK_SECONDS:
                how = f"was run {due[before] - copy.record.at:.3f} s before its retry was due"
                yield Finding("no early retry", log.group.name, event_id, how, copy.record.place)


def _early_runs(log: GroupLog) -> Iterator[Finding]:
    places = {copy.record.place: copy for copy in log.copies}
    for event_id, runs in _runs(log).items():
        for run in runs:
            copy = places.get(run.place)
            if copy is not None and run.at < copy.record.at + copy.delay - CLOCK_SECONDS:
                how = f"ran {copy.record.at + copy.delay - run.at:.3f} s before its retry was due"
                yield Finding("no early retry", log.group.name, event_id, how, run.place)


def _runs(log: GroupLog) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in log.group.runs or ():
        found[run.event_id].append(run)
    return found
