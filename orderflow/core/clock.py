"""The only place that reads a clock; everything else is handed one."""

import time
from datetime import UTC, datetime


def wall_ms() -> int:
    """Return this machine's wall clock in epoch milliseconds, the unit of Kafka's timestamps."""
    return time.time_ns() // 1_000_000


# Asked several times per record: a function around it would cost as much again.
monotonic = time.monotonic
"""Return seconds of a clock that never goes backwards, for deadlines and ages."""


def utc_now() -> datetime:
    """Return the wall clock as an aware UTC datetime."""
    return datetime.now(UTC)
