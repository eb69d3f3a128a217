"""What the relay needs of a producer; `orderflow.core.kafka.Publisher` has it."""

from typing import Protocol

from orderflow.core.kafka import Headers, Report


class Sender(Protocol):
    """Sends records and hands back one report per record."""

    failed: bool

    def send(self, ticket: int, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Queue a record; False when the queue is full."""
        ...

    def poll(self, timeout: float) -> list[Report[int]]:
        """Return the reports that have come."""
        ...

    def renew(self) -> list[Report[int]]:
        """Start over with a new producer; what was outstanding is reported as unknown."""
        ...
