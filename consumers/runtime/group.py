"""What a team writes: a `ConsumerGroup` with handlers. Twenty lines make a group."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, TypeVar
from uuid import UUID

from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.core.topics import GROUP_NAME, RESERVED_GROUP_NAMES
from retry.policy import APPLIED, DISCARDED, DlqPolicy
from schemas.events import EVENTS, Event

__all__ = ["APPLIED", "DISCARDED", "ConsumerGroup", "Delivery", "DlqPolicy", "Outcome"]

Handler = Callable[..., "Outcome | None"]
BatchHandler = Callable[..., "Sequence[Outcome | None] | None"]
H = TypeVar("H", bound=Callable[..., Any])


class Outcome(StrEnum):
    """What a handler may return to say more than "done" (returning None means `PROCESSED`)."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"  # the effect was already there; does not count as a success of the group
    STALE = "stale"  # a newer version of the order was applied before
    SKIPPED = "skipped"  # nothing is due for this event
    EXPIRED = "expired"  # older than the group's max_age


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one event to one handler.

    `maybe_done` is True when an earlier run may have had its effect. `idempotency_epoch` belongs
    into an inbox row beside the event id: `groups reset` starts a new one. `attempt` counts from 1.
    """

    group: str
    event_id: UUID
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]
    attempt: int
    replay_count: int
    maybe_done: bool
    idempotency_epoch: int


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group: its name, its handlers, and who answers for it.

    `setup` is a context manager from the settings to the handlers' dependencies, opened once per
    worker. `ordering="key"` runs one event of a key at a time. `max_age` ends older events as expired.
    `permanent` and `outage` are exception classes that mean `Reject` and `Outage` without being
    raised as such. Raises `Misconfigured` when owner, SLO or dead-letter policy are missing or wrong.
    """

    name: str
    owner: str = field(kw_only=True)
    slo_seconds: float = field(kw_only=True)
    dlq: DlqPolicy = field(kw_only=True)
    setup: Callable[[Settings], AbstractContextManager[Any]] | None = field(default=None, kw_only=True)
    ordering: Literal["key", "none"] = field(default="key", kw_only=True)
    max_age: timedelta | None = field(default=None, kw_only=True)
    permanent: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    outage: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    handlers: dict[str, Handler] = field(default_factory=dict, init=False)
    batch_handler: BatchHandler | None = field(default=None, init=False)
    types: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        """Refuse a group that nobody answers for."""
        if not GROUP_NAME.fullmatch(self.name) or self.name in RESERVED_GROUP_NAMES:
            raise Misconfigured(f"{self.name!r} is no group name: lower-case letters, digits, hyphens, at most 31")
        if not self.owner.strip():
            raise Misconfigured(f"group {self.name} has no owner: ConsumerGroup(..., owner='team-…')")
        if not 0 < self.slo_seconds < float("inf"):
            raise Misconfigured(f"group {self.name} needs slo_seconds > 0: how old may its oldest unread event be")
        if self.ordering not in ("key", "none"):
            raise Misconfigured(f"group {self.name}: ordering is 'key' or 'none', not {self.ordering!r}")

    def on(self, *event_types: type[Event]) -> Callable[[H], H]:
        """Register `handler(event, delivery, dependencies)` for these event types.

        Returning means done. Raising `Reject`, `Retry`, `Throttled` or `Outage` says how it failed.
        Raises `Misconfigured` for a type without a schema or with a handler already.
        """

        def register(handler: H) -> H:
            for event_type in event_types:
                self.handlers[self._free(event_type)] = handler
            self.types = frozenset(self.handlers)
            return handler

        return register

    def on_batch(self, *event_types: type[Event]) -> Callable[[H], H]:
        """Register `handler(batch, dependencies)`; a batch is `(event, delivery)` pairs of one partition, in order.

        Returning means that all are done (or one `Outcome` each); raising falls back to one by one,
        told `maybe_done`. A group has either a batch handler or handlers by type.
        """

        def register(handler: H) -> H:
            names = frozenset(self._free(event_type) for event_type in event_types)
            self.batch_handler, self.types = handler, names
            return handler

        return register

    def _free(self, event_type: type[Event]) -> str:
        name = event_type.type_name
        if name not in EVENTS:
            raise Misconfigured(f"group {self.name}: {event_type.__name__} has no schema (`orderflow schemas ls`)")
        if self.batch_handler is not None or name in self.types:
            raise Misconfigured(f"group {self.name} handles {event_type.__name__} already")
        return name
