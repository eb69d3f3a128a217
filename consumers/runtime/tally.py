"""What a worker has done since it began: plain ints on the hot path."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from consumers.runtime.handling import DeadlinePassed
from orderflow.core import clock
from orderflow.core.metrics import METRICS, Buckets
from retry.errors import HandlerError
from schemas.errors import DecodeError


class Tally:
    """Counts by topic, outcome and error, and how long things took."""

    def __init__(self) -> None:
        self.records: Counter[tuple[str, str]] = Counter()
        self.copies: Counter[tuple[str, str]] = Counter()
        self.decode_errors: Counter[str] = Counter()
        self.duration = Buckets(METRICS["orderflow_consumer_process_duration_seconds"].buckets)
        self.age = Buckets(METRICS["orderflow_consumer_end_to_end_seconds"].buckets)

    def resolved(self, topic: str, outcome: str, records: int = 1) -> None:
        """Count records that need nothing more."""
        self.records[topic, outcome] += records

    def durations(self, seconds: Sequence[float]) -> None:
        """Take the times of handler calls."""
        self.duration.observe(seconds)

    def ages(self, occurred_at: Sequence[datetime]) -> None:
        """Take when events happened whose effect is done now."""
        if occurred_at:
            now = clock.utc_now().timestamp()
            self.age.observe([now - moment for moment in map(datetime.timestamp, occurred_at)])

    def copy(self, to: str, error: BaseException) -> None:
        """Count one copy handed to the router; `to` is a tier like `5s`, or `dlq`."""
        known = isinstance(error, HandlerError | DecodeError | DeadlinePassed)
        self.copies[to, type(error).__name__ if known else "other"] += 1

    def unreadable(self, error: BaseException) -> None:
        """Count one record that could not be read."""
        self.decode_errors[error.reason if isinstance(error, DecodeError) else "other"] += 1
