"""THE loop. One control thread, one handler pool, no locks; read this first.

The control thread owns the consumer, the producer, Redis, offsets and lanes; handlers run in
threads, and finished work comes back through a queue. No step blocks longer than two seconds but a
revoke, which has a budget.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter

from consumers.runtime.admission import Admission
from consumers.runtime.claims import ClaimsDown
from consumers.runtime.executors.interface import Executor
from consumers.runtime.handling import DeadlinePassed
from consumers.runtime.intake import Intake
from consumers.runtime.lanes import Lanes
from consumers.runtime.record import Place
from consumers.runtime.settlement import Settlement
from orderflow.core import clock, log
from orderflow.core.errors import OrderflowError
from orderflow.core.lifecycle import Stop

_log = log.get(__name__)

_IDLE_SECONDS = 0.1  # how long a poll may wait when nothing runs: also the longest answer to a stop
_TURN_SECONDS = 0.005  # how long a turn waits for a handler to finish: also what a new record may wait meanwhile
_STANDSTILL_SECONDS = 2.0  # longer between two turns, and the process itself stood still
_LOOK_SECONDS = 0.25  # how often a worker looks for handlers that hang
_PROBE_SECONDS = (0.1, 5.0)  # back-off of calls to a Redis that does not answer


class HandlerHung(OrderflowError):
    """Raised when a handler has not come back for two deadlines: the process must end to be rid of its thread."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times and sizes that a worker goes by; seconds."""

    read_records: int
    deadline: float
    lease: float
    revoke_budget: float


class Worker:
    """Runs one consumer group's share of the partitions until it is told to stop."""

    def __init__(
        self,
        pace: Pace,
        *,
        intake: Intake,
        lanes: Lanes,
        executor: Executor,
        admission: Admission,
        settlement: Settlement,
    ) -> None:
        self._pace = pace
        self._intake = intake
        self._lanes = lanes
        self._executor = executor
        self._admission = admission
        self._settlement = settlement
        self._renew_at = 0.0
        self._probe_at = 0.0
        self._probe_wait = _PROBE_SECONDS[0]
        self._leaving_since: float | None = None
        self._looked_at = clock.monotonic()
        self._look_at = 0.0

    def run(self, stop: Stop, each_turn: Callable[[float], None]) -> None:
        """Work until `stop`, then finish or release, commit and leave the group; `each_turn` gets monotonic seconds.

        Raises `HandlerHung` after everything else has been drained, `Misconfigured` for a source
        partition without a position.
        """
        self._intake.subscribe(self)
        try:
            while not stop:
                each_turn(self.turn())
        finally:
            self._intake.close()
            self._executor.stop()
            if self._executor.busy:
                _log.warning("left with handlers still running; their leases will end", calls=self._executor.busy)

    def turn(self) -> float:
        """One turn: read, admit, settle, commit. Returns when it ended."""
        records = self._intake.read(self._patience(clock.monotonic()), self._pace.read_records)
        now = clock.monotonic()  # after the read: what has no delay is due by now
        if any(map(attrgetter("unreadable"), records)):
            for record in records:
                if record.unreadable:
                    self._settlement.unreadable(record)
            records = [record for record in records if not record.unreadable]
        self._lanes.add_all(records, now)
        self._look_for_hung(now)
        self._admit(now)
        self._settle(_TURN_SECONDS if self._executor.busy else 0.0)
        now = clock.monotonic()
        self._intake.commits.commit_if_due(now)
        return now

    def revoking(self, places: Collection[Place]) -> None:
        """Finish what runs of partitions that go within the revoke budget, release the rest, then commit."""
        until = clock.monotonic() + self._pace.revoke_budget
        self.gone(places)
        while clock.monotonic() < until and self._unsettled(places):
            self._settle(_TURN_SECONDS)
        self._intake.commits.commit_now(places, clock.monotonic())

    def gone(self, places: Collection[Place]) -> None:
        """Drop what waits; started handlers go on, and settle by their token."""
        for record in self._admission.withdraw(places):
            self._settlement.give_back(record)
        self._lanes.drop(places)

    def waiting(self) -> None:
        """Keep the leases of what runs, while an assignment waits for the broker."""
        self._settle(0.0)

    def _admit(self, now: float) -> None:
        if now < self._settlement.resting_until or self._leaving_since is not None or not self._redis_answers(now):
            return
        try:
            if runs := self._admission.admit(now, self._executor.room()):
                self._executor.start(runs)
        except ClaimsDown as error:
            self._redis_is_down(now, error)

    def _settle(self, wait: float) -> None:
        for result in self._executor.drain(wait):
            self._settlement.finished(result)
        now = clock.monotonic()
        self._settlement.confirm(now)
        if not self._redis_answers(now):
            return
        try:
            self._settlement.flush()
            if now >= self._renew_at:
                self._settlement.renew()
                self._renew_at = now + self._pace.lease / 3
                self._probe_wait = _PROBE_SECONDS[0]
        except ClaimsDown as error:
            self._redis_is_down(now, error)

    def _redis_answers(self, now: float) -> bool:
        return now >= self._probe_at

    def _redis_is_down(self, now: float, error: ClaimsDown) -> None:
        """Hold everything, keep polling, ask again after a while."""
        self._probe_at = now + self._probe_wait
        # A lease is renewed at a third: asked again within a sixth, it outlasts a Redis that is away for half of it.
        self._probe_wait = min(self._probe_wait * 2, _PROBE_SECONDS[1], self._pace.lease / 6)
        _log.warning("redis does not answer; work is held", error=str(error), again_seconds=self._probe_wait)

    def _patience(self, now: float) -> float:
        """How long a poll may wait for a record: not at all while something runs or could."""
        if self._executor.busy:
            return 0.0
        if len(self._settlement):
            return _TURN_SECONDS
        barred = max(self._settlement.resting_until, self._probe_at) - now
        soonest = self._lanes.next_time(now)
        return min(_IDLE_SECONDS, _IDLE_SECONDS if soonest is None else max(soonest, barred, 0.0))

    def _unsettled(self, places: Collection[Place]) -> bool:
        return self._intake.out(places) or self._settlement.owes(places)

    def _forgive_standstill(self, now: float) -> None:
        """Give handlers the time back for which the whole process was frozen, they included."""
        gap, self._looked_at = now - self._looked_at, now
        if gap > _STANDSTILL_SECONDS:
            for call in self._executor.running():
                call.began += gap

    def _look_for_hung(self, now: float) -> None:
        """Leave when a handler has not returned for two deadlines: no intake, drain the rest, route it, exit."""
        self._forgive_standstill(now)
        if now < self._look_at and self._leaving_since is None:
            return
        self._look_at = now + min(_LOOK_SECONDS, self._pace.deadline / 4)
        calls = [call for call in self._executor.running() if now - call.began > 2 * self._pace.deadline]
        hung = [record for call in calls for record in call.records if not record.abandoned]
        if hung and self._leaving_since is None:
            self._leaving_since = now
            _log.error("a handler hangs; this worker drains and leaves", events=[record.event_id for record in hung])
        if self._leaving_since is None:
            return
        others = self._executor.busy - len(calls) + len(self._settlement)
        if hung and others and now - self._leaving_since < self._pace.deadline:
            return
        for record in hung:
            record.abandoned = True
            if not record.lost:
                self._settlement.failed(record, DeadlinePassed(f"no answer for {2 * self._pace.deadline:g} s"))
        if not len(self._settlement) or now - self._leaving_since > 2 * self._pace.deadline:
            raise HandlerHung(f"a handler did not return within {2 * self._pace.deadline:g} s; start this worker again")
