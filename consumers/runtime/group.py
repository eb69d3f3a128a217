"""What a team writes: a `ConsumerGroup` with handlers. Twenty lines make a group."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeVar

from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.core.topics import GROUP_NAME, RESERVED_GROUP_NAMES
from retry.policy import APPLIED, DISCARDED, DlqPolicy
from schemas.events import EVENTS, Event

__all__ = ["APPLIED", "DISCARDED", "ConsumerGroup", "Delivery", "DlqPolicy", "Outcome"]

Handler = Callable[..., Any]
"""`handler(event, delivery, dependencies) -> Outcome | None`, plain or `async def`."""
BatchHandler = Callable[..., Any]
"""`handler([(event, delivery), ...], dependencies) -> Sequence[Outcome | None] | None`, plain or `async def`."""
Setup = Callable[[Settings], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
H = TypeVar("H", bound=Callable[..., Any])

RAW = "bytes"
"""Stands among a group's types for records that are handed over undecoded, whatever their type."""


class Outcome(StrEnum):
    """What a handler may return to say more than "done" (returning None means `PROCESSED`)."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"  # the effect was already there; does not count as a success of the group
    STALE = "stale"  # a newer version of the order was applied before
    SKIPPED = "skipped"  # nothing is due for this event
    EXPIRED = "expired"  # older than the group's max_age


class Delivery(Protocol):
    """One delivery of one event to one handler."""

    @property
    def group(self) -> str:
        """Name of the group it was delivered to."""

    @property
    def event_id(self) -> str:
        """The event's id as text; "" only for an undecoded record that names none."""

    @property
    def topic(self) -> str:
        """Topic it was read from: the source, a retry topic, or the replay topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp_ms(self) -> int:
        """The topic's own time, in epoch milliseconds."""

    @property
    def key(self) -> bytes | None:
        """Its key; None and empty are two things."""

    @property
    def value(self) -> bytes:
        """Its bytes as they came."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """All its headers, repeated names included."""

    @property
    def attempt(self) -> int:
        """Which run of the handler this is, from 1."""

    @property
    def replay_count(self) -> int:
        """How often it was replayed from the dead letters."""

    @property
    def maybe_done(self) -> bool:
        """Whether an earlier run may have had its effect; without claims nobody knows, and it always is True."""

    @property
    def idempotency_epoch(self) -> int:
        """What belongs into an inbox row beside the event id: `groups reset` starts a new one."""


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group: its name, its handlers, and who answers for it.

    `setup` is a context manager from the settings to the handlers' dependencies, opened once per worker;
    with `async def` handlers it may be an asynchronous one, opened in their event loop.
    `ordering="key"` runs one event of a key at a time. `max_age` ends older events as expired.
    `permanent` and `outage` are exception classes that mean `Reject` and `Outage` without being raised
    as such. `claims=False` leaves Redis out: nothing is lost, but what was done before a crash is done
    again, and an event that kills its process is tried for ever; for effects that may be repeated.
    Raises `Misconfigured` when owner, SLO or dead-letter policy are missing or wrong.
    """

    name: str
    owner: str = field(kw_only=True)
    slo_seconds: float = field(kw_only=True)
    dlq: DlqPolicy = field(kw_only=True)
    setup: Setup | None = field(default=None, kw_only=True)
    ordering: Literal["key", "none"] = field(default="key", kw_only=True)
    max_age: timedelta | None = field(default=None, kw_only=True)
    permanent: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    outage: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    claims: bool = field(default=True, kw_only=True)
    handlers: dict[str, Handler] = field(default_factory=dict, init=False)
    batch_handler: BatchHandler | None = field(default=None, init=False)
    types: frozenset[str] = field(default=frozenset(), init=False)
    is_async: bool = field(default=False, init=False)

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

    @property
    def raw(self) -> bool:
        """Whether its handlers get undecoded records of every type."""
        return RAW in self.types

    def on(self, *event_types: type[Event] | type[bytes]) -> Callable[[H], H]:
        """Register `handler(event, delivery, dependencies)` for these event types.

        Returning means done. Raising `Reject`, `Retry`, `Throttled` or `Outage` says how it failed.
        `on(bytes)` gets the undecoded value of every record in place of the event. Raises
        `Misconfigured` for a type without a schema or with a handler already, and for a mixture of
        plain and `async def` handlers.
        """

        def register(handler: H) -> H:
            for event_type in event_types:
                self.handlers[self._free(event_type)] = handler
                self.types = frozenset(self.handlers)
            self._note_kind(handler, first=len(set(self.handlers.values())) == 1)
            return handler

        return register

    def on_batch(self, *event_types: type[Event] | type[bytes]) -> Callable[[H], H]:
        """Register `handler(batch, dependencies)`; a batch is `(event, delivery)` pairs of one partition, in order.

        Returning means that all are done (or one `Outcome` each); raising falls back to one by one,
        told `maybe_done`. A group has either a batch handler or handlers by type. Raises as `on` does.
        """

        def register(handler: H) -> H:
            names = [self._free(event_type) for event_type in event_types]
            self._note_kind(handler, first=True)
            self.batch_handler, self.types = handler, frozenset(names)
            return handler

        return register

    def _free(self, event_type: type[Event] | type[bytes]) -> str:
        if issubclass(event_type, bytes):
            name = RAW
        elif (name := event_type.type_name) not in EVENTS:
            raise Misconfigured(f"group {self.name}: {event_type.__name__} has no schema (`orderflow schemas ls`)")
        if self.batch_handler is not None or name in self.types:
            raise Misconfigured(f"group {self.name} handles {event_type.__name__} already")
        if RAW in self.types or (name == RAW and self.types):
            raise Misconfigured(f"group {self.name}: a handler of bytes gets every record, beside it there is no other")
        return name

    def _note_kind(self, handler: Handler, *, first: bool) -> None:
        is_async = inspect.iscoroutinefunction(handler)
        if not first and is_async is not self.is_async:
            raise Misconfigured(f"group {self.name}: its handlers are all `async def` or none is")
        self.is_async = is_async
