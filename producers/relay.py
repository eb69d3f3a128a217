"""Outbox to Kafka: picks rows, sends them, and marks each only after its delivery report.

A window of rows is in flight at any time: while reports arrive, the next rows are read, and
PostgreSQL marks those that were reported. Nothing is remembered about what was read before; a row is
unpublished until it is marked.
"""

from collections import deque
from collections.abc import Sequence
from itertools import chain

from psycopg import Connection

from orderflow.core import clock, log
from orderflow.core.kafka import Report
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from producers import outbox
from producers.marking import Marking
from producers.sender import Sender

# Batches that may be held at once: while one waits for its reports and marks, the next is read and sent.
WINDOW_BATCHES = 2
# Values that one batch reads, in bytes; the producer's queue takes 64 MiB.
BATCH_BYTES = 16 * 1024 * 1024
# Rows that are sent before reports are served again.
_SEND_ROWS = 500
# How long reports gather before their rows are marked, in seconds: rows of one mark share a commit.
MARK_SECONDS = 0.02
# A cause outside the rows (no leader, no right to write) is given this long before the next try.
FAILURE_PAUSE_SECONDS = 1.0
_REPORT_WAIT_SECONDS = 0.02
# While PostgreSQL marks, the next versions of those orders wait for it.
_MARKING_WAIT_SECONDS = 0.002

_log = log.get(__name__)


class Relay:
    """One term of leadership: owns its connection, which holds the lock, and the publisher.

    Leadership is proved by an answer on that connection at least every third of `lease_seconds`, and
    nothing is sent on an older proof: a process that was frozen asks before it sends on.
    Every call may raise `psycopg.OperationalError`: the lock went with the connection. The term is
    over then, and `abandon` must be called.
    """

    def __init__(
        self,
        connection: Connection,
        sender: Sender,
        metrics: Metrics,
        *,
        batch_rows: int,
        poll_seconds: float,
        lease_seconds: float = 10.0,
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._batch_rows = batch_rows
        self._poll_seconds = poll_seconds
        self._proof_seconds = lease_seconds / 3
        self._prove_at = 0.0
        self._waiting: deque[outbox.Row] = deque()  # picked, not taken by the producer yet
        self._in_flight: set[int] = set()  # sent, no report yet
        self._reported: list[int] = []  # in the log, not marked yet
        self._marking: Marking | None = None  # in the log, PostgreSQL marks them now
        self._first_reported_at = 0.0
        self._blocked = False
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
        self._prove(now)
        if self._may_pick(now):
            self._pick(now)
        self._send()
        self._wait()
        self._mark()

    def drain(self, seconds: float) -> int:
        """Send nothing more, wait up to `seconds` for reports, mark; return how many rows have no report."""
        self._waiting.clear()
        deadline = clock.monotonic() + seconds
        while self._in_flight and clock.monotonic() < deadline:
            self._prove(clock.monotonic())
            self._settle(self._sender.poll(_REPORT_WAIT_SECONDS))
        self._finish_marking()
        if self._reported:
            self._begin_marking()
            self._finish_marking()
        return len(self._in_flight)

    def abandon(self) -> int:
        """Purge what is in flight: another relay may lead. Return how many sent rows are left unmarked."""
        left = self._held - len(self._waiting)
        self._sender.renew()
        self._waiting.clear()
        self._in_flight.clear()
        self._reported.clear()
        self._marking = None
        return left

    @property
    def _held(self) -> int:
        marking = len(self._marking.ids) if self._marking else 0
        return len(self._waiting) + len(self._in_flight) + len(self._reported) + marking

    def _may_pick(self, now: float) -> bool:
        return (
            self._hungry
            and self._marking is None
            and not self._blocked
            and now >= self._paused_until
            and self._held <= (WINDOW_BATCHES - 1) * self._batch_rows
        )

    def _pick(self, now: float) -> None:
        held = chain((row.id for row in self._waiting), self._in_flight, self._reported)
        rows = outbox.pick(self._connection, in_flight=held, limit=self._batch_rows, limit_bytes=BATCH_BYTES)
        self._prove_at = now + self._proof_seconds
        self._waiting.extend(rows)
        self._hungry = len(rows) == self._batch_rows or sum(len(row.value) for row in rows) >= BATCH_BYTES
        self._next_look = now + self._poll_seconds

    def _send(self) -> None:
        self._blocked = False
        waiting, in_flight, send = self._waiting, self._in_flight, self._sender.send
        for _ in range(min(len(waiting), _SEND_ROWS)):
            self._prove(clock.monotonic())
            row_id, topic, key, value, headers = waiting[0]
            if not send(row_id, topic, key=key, value=value, headers=outbox.wire_headers(headers)):
                self._blocked = True  # the queue is full: reports free it
                return
            in_flight.add(row_id)
            waiting.popleft()

    def _prove(self, now: float) -> None:
        if now < self._prove_at:
            return
        if self._marking:
            self._finish_marking()
        else:
            self._connection.execute("SELECT 1")
        self._prove_at = now + self._proof_seconds

    def _wait(self) -> None:
        if not self._held:
            until = max(self._next_look, self._paused_until) - clock.monotonic()
            seconds = min(until, self._poll_seconds, self._proof_seconds)
            rung = not self._hungry and self._rung(max(0.0, seconds))
            self._hungry = self._hungry or rung
            return
        self._settle(self._sender.poll(self._patience()))
        if not self._marking:
            self._hungry = self._rung(0.0) or self._hungry

    def _patience(self) -> float:
        """Return how long a report may be waited for, in seconds."""
        if self._marking:
            return _MARKING_WAIT_SECONDS if self._in_flight else 0.0
        more = (self._waiting and not self._blocked) or self._may_pick(clock.monotonic())
        return 0.0 if more else _REPORT_WAIT_SECONDS

    def _rung(self, seconds: float) -> bool:
        # The generator is read to its end: left half-way it would keep the connection's lock.
        return bool(list(self._connection.notifies(timeout=seconds, stop_after=1)))

    def _settle(self, reports: Sequence[Report[int]]) -> None:
        failed: dict[str, list[int]] = {}
        if self._sender.failed:
            _log.error("the producer failed for good; a new one takes over", in_flight=len(self._in_flight))
            # Among these may be late confirmations: sent again, their events would stand in the topic twice.
            reports = [*reports, *self._sender.renew()]
        if reports and not self._reported:
            self._first_reported_at = clock.monotonic()
        for report in reports:
            self._in_flight.discard(report.ticket)
            if report.error is None:
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
        self._finish_marking()
        outbox.quarantine(self._connection, row_id, error)
        self._outcomes["refused"].inc()

    def _fail(self, error: str, ids: Sequence[int]) -> None:
        _log.warning("events were not confirmed and are sent again", error=error, rows=len(ids))
        self._finish_marking()
        outbox.note_failed(self._connection, ids, error)
        self._outcomes["failed"].inc(len(ids))
        self._hungry = True
        self._paused_until = clock.monotonic() + FAILURE_PAUSE_SECONDS

    def _mark(self) -> None:
        if self._marking:
            if not self._in_flight or self._marking.done():
                self._finish_marking()
            return  # the next pick comes before the next marking
        if self._reported and (
            len(self._reported) >= self._batch_rows
            or not (self._in_flight or self._waiting)
            or clock.monotonic() - self._first_reported_at >= MARK_SECONDS
        ):
            self._begin_marking()

    def _begin_marking(self) -> None:
        self._marking = Marking(self._connection, self._reported)
        self._reported = []

    def _finish_marking(self) -> None:
        if self._marking:
            self._marking.finish()
            self._outcomes["published"].inc(len(self._marking.ids))
            self._marking = None
            # The next versions of these orders may be sent now.
            self._hungry = True
