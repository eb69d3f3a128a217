"""Where each event ended: applied + stale + skipped + dead + pending = all (G2), and nothing twice (G3, G4)."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.checker.facts import Effect, Outcome
from tests.checker.findings import Finding
from tests.checker.log import ENDS, Copy, GroupLog
from tests.checker.windows import Windows, gaps

# A handler that began before the note and ends so long after it was held up by something.
LONGEST_RUN_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Line:
    """One group's line of the books, in events of the types that it handles."""

    group: str
    all: int
    applied: int
    stale: int
    skipped: int
    dead: int
    pending: int
    lost: int
    doubled: int

    @property
    def balances(self) -> bool:
        return self.applied + self.stale + self.skipped + self.dead + self.pending == self.all and not self.lost


def fate(log: GroupLog, event_id: str) -> str:
    """The one end of an event; "lost" when it has none. What is noted in a table counts before what lies dead."""
    outcomes = {effect.outcome for effect in log.effects.get(event_id, ())} & ENDS
    for outcome in (Outcome.APPLIED, Outcome.STALE, Outcome.SKIPPED):
        if outcome in outcomes:
            return outcome.value
    copies = log.copies_of.get(event_id, [])
    if any(copy.dead for copy in copies):
        return "dead"
    places = [record.place for record in log.published[event_id]] + [copy.record.place for copy in copies]
    return "pending" if any(place in log.pending for place in places) else "lost"


def line(log: GroupLog) -> Line:
    found = Counter(fate(log, event_id) for event_id in log.published)
    doubled = sum(_ends(effects) > 1 for effects in log.effects.values())
    names = ("applied", "stale", "skipped", "dead", "pending", "lost")
    return Line(log.group.name, len(log.published), **{name: found[name] for name in names}, doubled=doubled)


def check(log: GroupLog) -> Iterator[Finding]:
    name = log.group.name
    windows = Windows(log.facts.faults, name, log.group.lease)
    effects = log.effects
    for event_id in log.published:
        if fate(log, event_id) == "lost":
            begun = "begun and has no end" if event_id in effects else "neither applied nor dead nor pending"
            yield Finding("nothing lost", name, event_id, f"is lost: {begun}")
        yield from _doubled(log, event_id, effects.get(event_id, []), windows)
        yield from _both(log, event_id, windows)
        if log.group.mails:
            applied = [effect.what for effect in effects.get(event_id, []) if effect.outcome is Outcome.APPLIED]
            if applied and "mail" not in applied:
                yield Finding("nothing lost", name, event_id, "is noted as sent, and no mail arrived")
    for event_id in effects.keys() - log.published.keys():
        what = "is of a type that the group does not handle" if log.event(event_id) else "was never published"
        yield Finding("no invention", name, event_id, f"has an effect and {what}")
    if log.facts.drained:
        for place in sorted(log.pending):
            event = log.facts.events.get(place)
            yield Finding(
                "drained", name, event.event_id if event else "", "is pending although nothing was left", place
            )
    yield from _foreign(log)
    yield from _may_die(log)


def _doubled(log: GroupLog, event_id: str, effects: list[Effect], windows: Windows) -> Iterator[Finding]:
    for what in {effect.what for effect in effects}:
        ends = [effect.at for effect in effects if effect.what == what and effect.outcome in ENDS]
        for began, ended in gaps(ends):
            if log.group.once:
                yield Finding("exactly once", log.group.name, event_id, f"has its effect {len(ends)} times ({what})")
                break
            if windows.unrecorded(_since(what, effects, began, ended), ended) is None:
                yield Finding(
                    "twice only in a window",
                    log.group.name,
                    event_id,
                    f"has its effect twice ({what}), {ended - began:.1f} s apart, and no fault explains it",
                )


def _since(what: str, effects: list[Effect], began: float, ended: float) -> float:
    """Since when a fault may explain a second effect: a mail that is noted as sent is seen by whoever begins later."""
    noted = min((e.at for e in effects if e.what == "row" and e.outcome in ENDS), default=ended)
    return max(began, ended - LONGEST_RUN_SECONDS) if what == "mail" and noted < ended else began


def _both(log: GroupLog, event_id: str, windows: Windows) -> Iterator[Finding]:
    dead = [copy.record.at for copy in log.copies_of.get(event_id, []) if copy.dead]
    ended = log.ended.get(event_id)
    if not dead or ended is None:
        return
    began, last = min(ended, dead[0]), max(ended, dead[0])
    # What is applied and then dies may have failed after its effect, which no handler can rule out.
    if windows.unrecorded(began, last) is None:
        yield Finding("one end", log.group.name, event_id, "is both applied and dead, and no fault explains it")


def _foreign(log: GroupLog) -> Iterator[Finding]:
    deaths: dict[object, list[Copy]] = defaultdict(list)
    for copy in log.copies:
        if copy.dead and copy.origin in log.facts.foreign:
            deaths[copy.origin].append(copy)
    for place in log.facts.foreign:
        if not deaths[place] and place not in log.pending:
            yield Finding("nothing lost", log.group.name, "", "is a foreign record that is not among the dead", place)


def _may_die(log: GroupLog) -> Iterator[Finding]:
    may = log.group.may_die
    if may is None:
        return
    for copy in log.copies:
        event_id = log.event_of(copy)
        if copy.dead and event_id and event_id not in may:
            why = copy.record.header("__dlq.errors.disposition")
            how = f"died ({why}, {copy.record.header('__dlq.errors.exception.class.name')}) and nothing asked it to"
            yield Finding("nothing flushed into the DLQ", log.group.name, event_id, how, copy.record.place)


def _ends(effects: list[Effect]) -> int:
    return max(Counter(effect.what for effect in effects if effect.outcome in ENDS).values(), default=0)
