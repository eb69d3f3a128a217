"""Backpressure: the API takes no orders while too many wait for the relay, counted once a second."""

import threading
from dataclasses import dataclass
from typing import Self

from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

from orderflow.core import log
from orderflow.core.metrics import Metrics
from producers import outbox
from producers.outbox import Backlog

# Closed above the limits, open again only under this share of both, so that it does not flutter.
REOPEN_SHARE = 0.8
COUNT_SECONDS = 1.0

_log = log.get(__name__)


@dataclass(slots=True)
class Gate:
    """Pure: whether orders are refused, given what waits. Limits in rows and in seconds."""

    max_rows: int
    max_age_seconds: float
    closed: bool = False

    def update(self, waiting: Backlog) -> bool:
        """Take in a new count; return whether the gate is closed now."""
        share = REOPEN_SHARE if self.closed else 1.0
        over_rows = waiting.rows > self.max_rows * share
        over_age = waiting.oldest_seconds > self.max_age_seconds * share
        self.closed = over_rows or over_age
        return self.closed


class BacklogCounter:
    """Counts the outbox in a thread of its own, shows it as metrics and moves the gate. A context manager."""

    def __init__(self, pool: ConnectionPool[Connection], metrics: Metrics, gate: Gate | None = None) -> None:
        self._pool = pool
        self._gate = gate
        self._rows = metrics.gauge("orderflow_outbox_unpublished_records")
        self._age = metrics.gauge("orderflow_outbox_oldest_unpublished_seconds")
        self._quarantined = metrics.gauge("orderflow_outbox_quarantined_records")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backlog", daemon=True)

    def count(self) -> Backlog:
        """Count once, now. Raises `psycopg.OperationalError` without a database."""
        with self._pool.connection() as connection:
            found = outbox.backlog(connection)
        self._rows.set(found.rows)
        self._age.set(found.oldest_seconds)
        self._quarantined.set(found.quarantined)
        if self._gate is not None:
            before = self._gate.closed
            if self._gate.update(found) != before:
                _log.warning(
                    "orders are refused: the relay is behind" if self._gate.closed else "orders are taken again",
                    rows=found.rows,
                    oldest_seconds=round(found.oldest_seconds),
                )
        return found

    def __enter__(self) -> Self:
        """Count once, so that the first request meets a known state, then every second."""
        self.count()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        self._ended.set()
        self._thread.join(timeout=COUNT_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(COUNT_SECONDS):
            try:
                self.count()
            except OperationalError:
                # Nothing can be stored either; requests answer 503 by themselves.
                continue
