"""Outbox to Kafka: picks rows, sends them, and marks each only after its delivery report.

A window of rows is in flight at any time: while reports arrive, the next rows are read, and marks
are written in batches. Nothing is remembered about what was read before; a row is unpublished until
it is marked.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from psycopg import Connection

from orderflow.core import clock, log
from orderflow.core.kafka import Headers, Report
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from producers import outbox

# Batches that may be in flight at once: while one waits for its reports, one is sent and one read.
WINDOW_BATCHES = 4
# How long reports gather before their rows are marked, in seconds: rows of one mark share a commit.
MARK_SECONDS = 0.02
# A cause outside the rows (no leader, no right to write) is given this long before the next try.
FAILURE_PAUSE_SECONDS = 1.0
_REPORT_WAIT_SECONDS = 0.02

_log = log.get(__name__)


class Sender(Protocol):
    """What the relay needs of `orderflow.core.kafka.Publisher`."""

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


class Relay:
    """One term of leadership: owns its connection, which holds the lock, and the publisher.

    Every call may raise `psycopg.OperationalError`: the lock went with the connection. The term is
    over then, and `abandon` must be called.
    """

    def __init__(
        self, connection: Connection, sender: Sender, metrics: Metrics, *, batch_rows: int, poll_seconds: float
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._batch_rows = batch_rows
        self._poll_seconds = poll_seconds
        self._waiting: deque[outbox.Row] = deque()  # picked, not taken by the producer yet
        self._in_flight: set[int] = set()  # sent, no report yet
        self._reported: list[int] = []  # in the log, not marked yet
        self._first_reported_at = 0.0
        self._hungry = True
        self._next_look = 0.0
        self._paused_until = 0.0
        self._outcomes = {
            outcome: metrics.counter("orderflow_publish_total", outcome=outcome)
            for outcome in ("published", "refused", "failed")
        }
        outbox.prepare(connection)

    def run(self, stop: Stop) -> None:
        """Publish until a stop is asked for."""
        while not stop:
            self.turn()

    def turn(self) -> None:
        """Do what can be done now; wait for news when there is nothing."""
        now = clock.monotonic()
        if now >= self._next_look:
            self._hungry = True
        if self._hungry and now >= self._paused_until and self._held <= (WINDOW_BATCHES - 1) * self._batch_rows:
            self._pick(now)
        self._send()
        self._wait()
        if self._mark_is_due():
            self._mark()

    def drain(self, seconds: float) -> int:
        """Send nothing more, wait up to `seconds` for reports, mark; return how many rows have no report."""
        self._waiting.clear()
        deadline = clock.monotonic() + seconds
        while self._in_flight and clock.monotonic() < deadline:
            self._settle(self._sender.poll(_REPORT_WAIT_SECONDS))
        if self._reported:
            self._mark()
        return len(self._in_flight)

    def abandon(self) -> int:
        """Purge what is in flight: another relay may lead. Return how many sent rows are left unmarked."""
        left = len(self._in_flight) + len(self._reported)
        self._sender.renew()
        self._waiting.clear()
        self._in_flight.clear()
        self._reported.clear()
        return left

    @property
    def _held(self) -> int:
        return len(self._waiting) + len(self._in_flight) + len(self._reported)

    def _pick(self, now: float) -> None:
        held = [*(row.id for row in self._waiting), *self._in_flight, *self._reported]
        rows = outbox.pick(self._connection, in_flight=held, limit=self._batch_rows)
        self._waiting.extend(rows)
        self._hungry = len(rows) == self._batch_rows
        self._next_look = now + self._poll_seconds

    def _send(self) -> None:
        while self._waiting:
            row = self._waiting[0]
            if not self._sender.send(row.id, row.topic, key=row.key, value=row.value, headers=row.wire_headers()):
                return  # the queue is full: reports free it
            self._in_flight.add(row.id)
            self._waiting.popleft()

    def _wait(self) -> None:
        if self._held:
            busy = self._hungry and self._held <= (WINDOW_BATCHES - 1) * self._batch_rows
            self._settle(self._sender.poll(0.0 if busy else _REPORT_WAIT_SECONDS))
            rung = self._rung(0.0)
        else:
            until = max(self._next_look, self._paused_until) - clock.monotonic()
            rung = not self._hungry and self._rung(max(0.0, min(until, self._poll_seconds)))
        self._hungry = self._hungry or rung

    def _rung(self, seconds: float) -> bool:
        # The generator is read to its end: left half-way it would keep the connection's lock.
        return bool(list(self._connection.notifies(timeout=seconds, stop_after=1)))

    def _settle(self, reports: Sequence[Report[int]]) -> None:
        failed: dict[str, list[int]] = {}
        if self._sender.failed:
            _log.error("the producer failed for good; a new one takes over", in_flight=len(self._in_flight))
            # Among these may be late confirmations: sent again, their events would stand in the topic twice.
            reports = [*reports, *self._sender.renew()]
        for report in reports:
            self._in_flight.discard(report.ticket)
            if report.error is None:
                if not self._reported:
                    self._first_reported_at = clock.monotonic()
                self._reported.append(report.ticket)
            elif report.record_refused:
                self._quarantine(report.ticket, report.error.str())
            else:
                failed.setdefault(report.error.str(), []).append(report.ticket)
        for error, ids in failed.items():
            self._fail(error, ids)

    def _quarantine(self, row_id: int, error: str) -> None:
        _log.error(
            "Kafka refuses an event for itself; its order waits (`orderflow outbox ls`)", row=row_id, error=error
        )
        outbox.quarantine(self._connection, row_id, error)
        self._outcomes["refused"].inc()

    def _fail(self, error: str, ids: Sequence[int]) -> None:
        _log.warning("events were not confirmed and are sent again", error=error, rows=len(ids))
        outbox.note_failed(self._connection, ids, error)
        self._outcomes["failed"].inc(len(ids))
        self._hungry = True
        self._paused_until = clock.monotonic() + FAILURE_PAUSE_SECONDS

    def _mark_is_due(self) -> bool:
        return bool(self._reported) and (
            len(self._reported) >= self._batch_rows
            or not (self._in_flight or self._waiting)
            or clock.monotonic() - self._first_reported_at >= MARK_SECONDS
        )

    def _mark(self) -> None:
        outbox.mark_published(self._connection, self._reported)
        self._outcomes["published"].inc(len(self._reported))
        self._reported.clear()
        # The next versions of these orders may be sent now.
        self._hungry = True
