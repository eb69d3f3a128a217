"""One record in a worker's hands: where it came from, and how far this process is with it."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from consumers.runtime.claims import ClaimRequest, Pair
from retry.story import Story
from schemas import codec
from schemas import headers as names
from schemas.headers import Headers

Place = tuple[str, int]  # topic, partition


@dataclass(slots=True, eq=False)
class Assignment:
    """One partition for as long as it is ours; what all of its records have in common.

    `own` says that the topic is one of the group's own (tiers, replay). `out` counts the records that
    were taken to be run and are not settled yet.
    """

    topic: str
    partition: int
    epoch: int
    group: str = ""
    idempotency_epoch: int = 0
    own: bool = False
    out: int = 0
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        """Keep the pair that all tables are keyed by."""
        self.place = (self.topic, self.partition)


class Record:
    """A delivered record that is not resolved yet; handlers see it as their `Delivery`.

    It costs a fraction of a microsecond to make: whatever not every record needs is a default of the
    class, or is worked out when somebody asks. `due` are our monotonic seconds before which it must not
    run. A record that is `unreadable` names no event: it can neither be claimed nor handled.
    """

    due = 0.0
    schema_known = True
    unreadable = False
    payload_hash = b""

    # This process's own state; a new token for every try.
    lane: Hashable = None
    token = ""
    crashes = 0
    maybe_done = False
    started = False
    lost = False
    abandoned = False
    outages = 0

    def __init__(self, message: Any, assignment: Assignment) -> None:
        """Take a message of confluent-kafka without an error."""
        self.message = message
        self.assignment = assignment

    @property
    def offset(self) -> int:
        """Its offset."""
        return int(self.message.offset())

    @property
    def topic(self) -> str:
        """Topic it was read from."""
        return self.assignment.topic

    @property
    def partition(self) -> int:
        """Its partition."""
        return self.assignment.partition

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.assignment.place

    @property
    def epoch(self) -> int:
        """The assignment that it was delivered under."""
        return self.assignment.epoch

    @property
    def key(self) -> bytes | None:
        """Its key; None and empty are two things."""
        key: bytes | None = self.message.key()
        return key

    @property
    def value(self) -> Any:
        """Its value, bytes; None only for a record that no handler is given."""
        return self.message.value()

    @property
    def timestamp_ms(self) -> int:
        """The broker's or the producer's time, in epoch milliseconds."""
        return int(self.message.timestamp()[1])

    @cached_property
    def headers(self) -> Headers:
        """All its headers; none when a name is not UTF-8."""
        return names.of(self.message) or []

    @cached_property
    def story(self) -> Story:
        """What its reserved headers say; on the source topic they are not believed."""
        return Story.read(
            self.headers if self.assignment.own else None,
            own_topic=self.assignment.own,
            origin=(self.topic, self.partition, self.offset, self.timestamp_ms),
        )

    @cached_property
    def event_id(self) -> str:
        """The event's id as text; "" when nothing names one."""
        return names.header(self.headers, names.CE_ID) or codec.event_id(self.value or b"") or ""

    @property
    def group(self) -> str:
        """The group it was delivered to."""
        return self.assignment.group

    @property
    def idempotency_epoch(self) -> int:
        """What belongs into an inbox row beside the event id."""
        return self.assignment.idempotency_epoch

    @property
    def attempt(self) -> int:
        """Which run of the handler this is, from 1."""
        return self.story.attempts + 1

    @property
    def replay_count(self) -> int:
        """How often it was replayed from the dead letters."""
        return self.story.replay_count

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum([len(name) + len(value or b"") for name, value in self.headers])
        return len(self.message.key() or b"") + len(self.message) + headers

    @property
    def pair(self) -> Pair:
        """Replay count and hop, by which Redis tells a newer copy from an older one."""
        return self.story.pair

    def request(self, *, alone: bool) -> ClaimRequest:
        """Return the claim for the present token."""
        return ClaimRequest(self.event_id, self.token, self.payload_hash, self.pair, alone)

    def forget_try(self) -> None:
        """Drop what belonged to the last try, before the record waits for another."""
        self.token, self.crashes, self.maybe_done = "", 0, False
        self.started, self.lost = False, False


class UnclaimedRecord(Record):
    """A record of a group without claims: nobody knows whether an earlier run had its effect."""

    maybe_done = True
