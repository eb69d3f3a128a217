"""What was found, as plain values: the accounting sees nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

CREATED = "shop.orders.OrderCreated"
PAID = "shop.orders.OrderPaid"
CANCELLED = "shop.orders.OrderCancelled"


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class Change(NamedTuple):
    """A change of an order as the API answered it with 201; one event is due for each."""

    type_name: str
    order_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Published:
    """An event that was read from the source topic."""

    event_id: UUID
    change: Change
    place: Place


@dataclass(frozen=True, slots=True)
class Effect:
    """A row that a group keeps of an event: `applied`, `stale`, `skipped`, or `begun` when its end is not noted."""

    event_id: UUID
    outcome: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a group's dead-letter topic; copies of one death share `dlq_id`."""

    dlq_id: str
    event_id: UUID | None
    origin: Place
    disposition: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Mail:
    """An accepted mail."""

    message_id: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What one group did; `pending` is records not committed yet, by topic and partition."""

    name: str
    handles: frozenset[str]
    effects: Sequence[Effect]
    dead: Sequence[DeadLetter]
    pending: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything: answers of the API, the source topic, the groups, the mails, pieces reserved by article.

    `foreign` are records of the source topic that hold no event of ours.
    """

    answered: Sequence[Change]
    published: Sequence[Published]
    foreign: Sequence[Place]
    groups: Sequence[GroupFacts]
    mails: Sequence[Mail]
    reserved: Mapping[str, int]
