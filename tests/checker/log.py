"""Indexes over the dumps that every check of a group needs."""

from dataclasses import dataclass
from functools import cached_property

from tests.checker.facts import Effect, Event, Facts, GroupFacts, Outcome, Place, Record

ORIGIN = "__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset"
ATTEMPTS = "__dlq.errors.delivery.count"
ROUNDS = "retry.rounds"
REPLAYS = "dlq.replay.count"
STAGE = "__dlq.errors.stage"
DISPOSITION = "__dlq.errors.disposition"
DLQ_ID = "dlq.id"
RESERVED = ("retry.", "dlq.", "__dlq.")
ENDS = frozenset({Outcome.APPLIED, Outcome.STALE, Outcome.SKIPPED})


@dataclass(frozen=True, slots=True)
class Copy:
    """A record of a retry topic or of the dead letters, and what its headers say."""

    record: Record
    dead: bool
    origin: Place
    attempts: int
    rounds: int
    replays: int
    delay: float

    @property
    def hop(self) -> tuple[int, int]:
        return self.replays, self.attempts + self.rounds


class GroupLog:
    """One group's part of the facts, by event."""

    def __init__(self, facts: Facts, group: GroupFacts) -> None:
        self.facts = facts
        self.group = group

    @cached_property
    def _everybody(self) -> dict[str, list[Record]]:
        return self.facts.published()

    @cached_property
    def published(self) -> dict[str, list[Record]]:
        """Records of the source that hold an event of a type that the group handles."""
        return {
            event_id: records
            for event_id, records in self._everybody.items()
            if self.facts.events[records[0].place].type_name in self.group.handles
        }

    def event(self, event_id: str) -> Event | None:
        records = self._everybody.get(event_id)
        return self.facts.events[records[0].place] if records else None

    @cached_property
    def effects(self) -> dict[str, list[Effect]]:
        """What the group's tables and mails say of each event."""
        found: dict[str, list[Effect]] = {}
        for effect in self.group.effects:
            found.setdefault(effect.event_id, []).append(effect)
        return found

    @cached_property
    def copies(self) -> list[Copy]:
        """Every copy, in the order in which they were appended."""
        found = [
            _copy(record, self.group, topic)
            for topic in (*self.group.own, self.group.dlq)
            for record in self.facts.records.get(topic, ())
        ]
        return sorted(found, key=lambda copy: copy.record.at)

    def event_of(self, copy: Copy) -> str:
        """The id of the event that a copy is of, by the place where it first stood; "" for a foreign record."""
        event = self.facts.events.get(copy.origin)
        return event.event_id if event else ""

    @cached_property
    def copies_of(self) -> dict[str, list[Copy]]:
        found: dict[str, list[Copy]] = {}
        for copy in self.copies:
            found.setdefault(self.event_of(copy), []).append(copy)
        return found

    @cached_property
    def ended(self) -> dict[str, float]:
        """When each event's first end was noted in the group's own tables."""
        found: dict[str, float] = {}
        for effect in self.group.effects:
            if effect.outcome in ENDS:
                found[effect.event_id] = min(effect.at, found.get(effect.event_id, effect.at))
        return found

    @cached_property
    def pending(self) -> set[Place]:
        """Records that are not committed: of the source, and of the group's own topics."""
        return {
            record.place
            for topic in (self.facts.source, *self.group.own)
            for record in self.facts.records.get(topic, ())
            if record.place.offset >= self.group.committed.get((topic, record.place.partition), 0)
        }


def _copy(record: Record, group: GroupFacts, topic: str) -> Copy:
    names = ORIGIN
    origin = Place(record.header(names[0]) or "", record.number(names[1], -1), record.number(names[2], -1))
    after = record.number("retry.after") / 1000
    return Copy(
        record,
        topic == group.dlq,
        origin,
        record.number(ATTEMPTS),
        record.number(ROUNDS),
        record.number(REPLAYS),
        max(group.tiers.get(topic, 0.0), after),
    )


def foreign_headers(record: Record) -> tuple[tuple[str, bytes | None], ...]:
    """The headers that nobody of ours may touch."""
    return tuple((name, value) for name, value in record.headers if not name.startswith(RESERVED))
