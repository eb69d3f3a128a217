"""What was seen of a run, as plain values: the checks know nothing else.

Times are seconds since the epoch. Kafka's, PostgreSQL's and ours are one clock, since all run on one machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Partition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]

CREATED = "shop.orders.OrderCreated"
PAID = "shop.orders.OrderPaid"
CANCELLED = "shop.orders.OrderCancelled"


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read; `at` is the broker's LogAppendTime."""

    place: Place
    at: float
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> str | None:
        """The last header of that name as text."""
        for key, value in reversed(self.headers):
            if key == name:
                return None if value is None else value.decode(errors="replace")
        return None

    def number(self, name: str, missing: int = 0) -> int:
        """The last header of that name as a number; -1 when it is none."""
        text = self.header(name)
        if text is None:
            return missing
        return int(text) if text.isascii() and text.isdigit() else -1


@dataclass(frozen=True, slots=True)
class Event:
    """What a value of the source topic says."""

    event_id: str
    type_name: str
    order_id: str
    order_version: int
    pieces: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ack:
    """An HTTP 201: this version of this order is promised."""

    order_id: str
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class OutboxRow:
    event_id: str
    order_id: str
    version: int
    key: bytes
    value: bytes
    headers: Headers
    created_at: float
    published: bool
    quarantined: bool = False


class Outcome(StrEnum):
    """How an event ended in a group's own tables."""

    APPLIED = "applied"
    STALE = "stale"
    SKIPPED = "skipped"
    BEGUN = "begun"  # a note that it is being tried, no end


@dataclass(frozen=True, slots=True)
class Effect:
    """A row, or a mail, that a group left for an event. The same event twice is two effects."""

    event_id: str
    outcome: Outcome
    at: float
    what: str = "row"


@dataclass(frozen=True, slots=True)
class Run:
    """A handler that was called: with which delivery, and when."""

    event_id: str
    attempt: int
    place: Place
    at: float


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's offset, as the broker stored it."""

    partition: Partition
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it stands in Redis in the end; `ttl_ms` is -1 for one that never goes."""

    event_id: str
    state: str
    ttl_ms: int


class Kind(StrEnum):
    """What can be done to a part."""

    KILL = "kill"  # SIGKILL
    EXIT = "exit"  # it ended by itself
    STOP = "stop"  # SIGTERM
    START = "start"
    FREEZE = "freeze"  # SIGSTOP until SIGCONT
    AWAY = "away"  # a server is down
    CUT = "cut"  # the network between
    FLUSH = "flush"  # FLUSHALL
    STALL = "stall"  # the machine had no time for anybody


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to whom. `role` is worker, relay, api, kafka, redis, postgres, mail or machine.

    `group` is a worker's, or the group whose workers are cut off; "" for all.
    """

    kind: Kind
    role: str
    began: float
    ended: float
    group: str = ""
    name: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds > 0.05 else ""
        return f"{self.kind} of {self.name or self.role}{lasting}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    event_id: str
    epoch: int
    type_name: str
    order_id: str
    order_version: int
    place: Place
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Stock:
    """The inventory group's tables: pieces on hand and reserved by article, each order's state and reservations.

    `scarce` are articles of which there may be too little; of all others there is always enough.
    """

    on_hand: Mapping[str, int]
    reserved: Mapping[str, int]
    states: Mapping[str, str]
    reservations: Mapping[tuple[str, str], int]
    scarce: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What one group did.

    `tiers` are its retry topics and their delays in seconds. `once`: a second effect is wrong whatever happened.
    `runs` is None where nobody counts them. `may_die`: the only events that its dead letters may hold; None for
    any. `lease` in seconds. `mails`: what is applied must have been mailed.
    """

    name: str
    handles: frozenset[str]
    tiers: Mapping[str, float]
    replay: str
    dlq: str
    once: bool
    effects: Sequence[Effect] = ()
    commits: Sequence[Commit] = ()
    committed: Mapping[Partition, int] = field(default_factory=dict)
    runs: Sequence[Run] | None = None
    claims: Sequence[Claim] = ()
    may_die: frozenset[str] | None = None
    lease: float = 30.0
    mails: bool = False

    @property
    def budget(self) -> int:
        """Attempts that an event has."""
        return 1 + len(self.tiers)

    @property
    def own(self) -> tuple[str, ...]:
        """Topics that hold its pending copies."""
        return (*self.tiers, self.replay)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything.

    `records` are the dumps of all topics. `events` says what the values of the source hold; a place that is not in
    it is a foreign record, and only those in `foreign` may be there. `reported` are places that a delivery report
    named. `outbox` is None where nothing was published through one.
    """

    source: str
    records: Mapping[str, Sequence[Record]]
    events: Mapping[Place, Event]
    groups: Sequence[GroupFacts]
    acks: Sequence[Ack] = ()
    outbox: Sequence[OutboxRow] | None = None
    reported: Sequence[Place] = ()
    foreign: frozenset[Place] = frozenset()
    audit: Sequence[AuditRow] | None = None
    stock: Stock | None = None
    faults: Sequence[Fault] = ()
    drained: bool = True

    def published(self) -> dict[str, list[Record]]:
        """The records of the source by event id, in the order in which they were appended."""
        found: dict[str, list[Record]] = {}
        for record in sorted(self.records.get(self.source, ()), key=lambda one: one.at):
            event = self.events.get(record.place)
            if event is not None:
                found.setdefault(event.event_id, []).append(record)
        return found
