"""What a worker has done since it began: plain ints on the hot path."""

from collections import Counter
from collections.abc import Callable

from consumers.runtime.handling import DeadlinePassed
from retry.errors import HandlerError
from schemas.errors import DecodeError

Observe = Callable[[float], None]


def _unobserved(_seconds: float) -> None:
    """Nobody measures."""


class Tally:
    """Counts by topic, outcome and error; `duration` and `age` are handed seconds and may be replaced."""

    def __init__(self) -> None:
        self.records: Counter[tuple[str, str]] = Counter()
        self.copies: Counter[tuple[str, str]] = Counter()
        self.decode_errors: Counter[str] = Counter()
        self.duration: Observe = _unobserved
        self.age: Observe = _unobserved

    def resolved(self, topic: str, outcome: str) -> None:
        """Count one record that needs nothing more."""
        self.records[topic, outcome] += 1

    def copy(self, to: str, error: BaseException) -> None:
        """Count one copy handed to the router; `to` is a tier like `5s`, or `dlq`."""
        known = isinstance(error, HandlerError | DecodeError | DeadlinePassed)
        self.copies[to, type(error).__name__ if known else "other"] += 1

    def unreadable(self, error: BaseException) -> None:
        """Count one record that could not be read."""
        self.decode_errors[error.reason if isinstance(error, DecodeError) else "other"] += 1
