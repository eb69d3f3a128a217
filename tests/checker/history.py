"""A clean history to break: three groups that did everything right, with a retry, a death and a crash among it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tests.checker.facts import (
    CANCELLED,
    CREATED,
    PAID,
    Ack,
    AuditRow,
    Claim,
    Commit,
    Effect,
    Event,
    Facts,
    Fault,
    GroupFacts,
    OutboxRow,
    Outcome,
    Place,
    Record,
    Run,
    Stock,
)

SOURCE = "orders"
EVERYTHING = frozenset({CREATED, PAID, CANCELLED})
TIERS = (1.0, 2.0)
ORDERS = 6
BEGAN = 1_800_000_000.0


def an_id(number: int) -> str:
    return str(UUID(int=number))


@dataclass
class History:
    """A run as it should be: six orders, the second and the fifth cancelled. Change what you like, then ask `facts`."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    events: dict[Place, Event] = field(default_factory=dict)
    outbox: list[OutboxRow] = field(default_factory=list)
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    audit: list[AuditRow] = field(default_factory=list)
    reservations: dict[tuple[str, str], int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def facts(self) -> Facts:
        reserved = {"TEA": sum(self.reservations.values())}
        return Facts(
            source=SOURCE,
            records=self.records,
            events=self.events,
            groups=list(self.groups.values()),
            acks=[Ack(row.order_id, row.version, row.created_at) for row in self.outbox],
            outbox=self.outbox,
            reported=[record.place for record in self.records[SOURCE]],
            audit=self.audit,
            stock=Stock({"TEA": 1_000}, reserved, self.states, self.reservations),
            faults=self.faults,
        )

    def change(self, name: str, **fields: Any) -> None:
        """Replace some of a group's facts."""
        self.groups[name] = replace(self.groups[name], **fields)

    def without_effect(self, name: str, event_id: str) -> None:
        self.change(name, effects=[one for one in self.groups[name].effects if one.event_id != event_id])

    def again(self, name: str, event_id: str, seconds: float, **fields: Any) -> Effect:
        """Let an event have its effect once more, some seconds later."""
        effects = self.groups[name].effects
        first = next(one for one in effects if one.event_id == event_id and one.outcome is not Outcome.BEGUN)
        second = replace(first, at=first.at + seconds, **fields)
        self.change(name, effects=[*effects, second])
        return first


def _publish(history: History) -> None:
    for number in range(ORDERS):
        types = [CREATED, CANCELLED] if number % 3 == 1 else [CREATED, PAID]
        for version, type_name in enumerate(types, start=1):
            event_id, order_id = an_id(100 + len(history.ids)), an_id(number)
            offset = len(history.ids)
            place, at = Place(SOURCE, 0, offset), BEGAN + offset
            event = Event(event_id, type_name, order_id, version, {"TEA": 2} if type_name == CREATED else {})
            key, value = order_id.encode(), f"{event_id} {type_name}".encode()
            headers = (("ce_id", event_id.encode()), ("trace", b"\xff"), ("trace", None))
            history.ids.append(event_id)
            history.events[place] = event
            history.records.setdefault(SOURCE, []).append(Record(place, at, key, value, headers))
            history.outbox.append(OutboxRow(event_id, order_id, version, key, value, headers, at - 0.1, published=True))


def copy_of(
    record: Record, topic: str, at: float, *, offset: int = 0, attempts: int, told: Mapping[str, str] | None = None
) -> Record:
    """A copy as the router writes it."""
    place = record.place
    headers = {
        "__dlq.errors.topic": place.topic,
        "__dlq.errors.partition": str(place.partition),
        "__dlq.errors.offset": str(place.offset),
        "__dlq.errors.delivery.count": str(attempts),
        "__dlq.errors.stage": "HANDLE",
        **(told or {}),
    }
    ours = tuple((name, text.encode()) for name, text in headers.items())
    return Record(Place(topic, place.partition, offset), at, record.key, record.value, record.headers + ours)


def _group(history: History, name: str, handles: frozenset[str], *, once: bool) -> GroupFacts:
    """Everything is handled a tenth of a second after it was published, and committed soon after."""
    tiers = {f"{SOURCE}.{name}.retry.{seconds:g}s": seconds for seconds in TIERS}
    mine = [r for r in history.records[SOURCE] if history.events[r.place].type_name in handles]
    source = (SOURCE, 0)
    return GroupFacts(
        name=name,
        handles=handles,
        tiers=tiers,
        replay=f"{SOURCE}.{name}.replay",
        dlq=f"{SOURCE}.{name}.dlq",
        once=once,
        effects=[Effect(history.events[r.place].event_id, Outcome.APPLIED, r.at + 0.1) for r in mine],
        commits=[Commit(source, r.place.offset + 1, r.at + 0.2) for r in history.records[SOURCE]],
        committed={source: len(history.ids)},
        claims=[Claim(history.events[r.place].event_id, "C", 1_000) for r in mine],
        may_die=frozenset(),
        lease=2.0,
    )


def _retried(history: History, name: str) -> None:
    """The first event works in its second try, the fifth dies after its third; the handlers were counted."""
    group = history.groups[name]
    short, long = group.tiers
    works, dies = history.records[SOURCE][0], history.records[SOURCE][4]
    history.records[short] = [
        copy_of(works, short, works.at + 0.15, attempts=1),
        copy_of(dies, short, dies.at + 0.15, offset=1, attempts=1),
    ]
    history.records[long] = [copy_of(dies, long, dies.at + 1.2, attempts=2)]
    told = {"dlq.id": "d1", "__dlq.errors.disposition": "EXHAUSTED"}
    history.records[group.dlq] = [copy_of(dies, group.dlq, dies.at + 3.3, attempts=3, told=told)]
    first, last = history.ids[0], history.ids[4]
    runs = [
        Run(event.event_id, 1, record.place, record.at + 0.1)
        for record in history.records[SOURCE]
        if (event := history.events[record.place]).type_name in group.handles
    ]
    runs += [
        Run(first, 2, Place(short, 0, 0), works.at + 1.16),
        Run(last, 2, Place(short, 0, 1), dies.at + 1.16),
        Run(last, 3, Place(long, 0, 0), dies.at + 3.21),
    ]
    effects = [
        replace(one, at=works.at + 1.17) if one.event_id == first else one
        for one in group.effects
        if one.event_id != last
    ]
    commits = [
        *group.commits,
        Commit((short, 0), 1, works.at + 1.5),
        Commit((short, 0), 2, dies.at + 1.5),
        Commit((long, 0), 1, dies.at + 3.5),
    ]
    claims = [replace(claim, state="R") if claim.event_id == last else claim for claim in group.claims]
    history.change(
        name,
        effects=effects,
        runs=runs,
        commits=commits,
        claims=claims,
        committed={**group.committed, (short, 0): 2, (long, 0): 1},
        may_die=frozenset({last}),
    )


def clean() -> History:
    history = History()
    _publish(history)
    history.groups = {
        "email": _group(history, "email", frozenset({CREATED}), once=False),
        "inventory": _group(history, "inventory", EVERYTHING, once=True),
        "audit": _group(history, "audit", EVERYTHING, once=True),
    }
    _retried(history, "email")
    for record in history.records[SOURCE]:
        event = history.events[record.place]
        told = event.event_id, 0, event.type_name, event.order_id, event.order_version
        history.audit.append(AuditRow(*told, record.place, hashlib.sha256(record.value or b"").digest()))
        cancelled = history.states.get(event.order_id) == "cancelled" or event.type_name == CANCELLED
        history.states[event.order_id] = "cancelled" if cancelled else "reserved"
        history.reservations.pop((event.order_id, "TEA"), None)
        if not cancelled:
            history.reservations[event.order_id, "TEA"] = 2
    return history
