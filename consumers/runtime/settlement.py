"""What becomes of a claimed record: completed, routed, or given back to wait. Effect, then Redis, then offset."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from consumers.runtime.claims import Claims, Pair, Release
from consumers.runtime.complaints import Complaints
from consumers.runtime.group import ConsumerGroup, Outcome
from consumers.runtime.handling import NotReached, Result
from consumers.runtime.inflight import InFlight
from consumers.runtime.lanes import Lanes
from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.record import Place, Record
from consumers.runtime.tally import Tally
from orderflow.core import clock
from orderflow.core.holds import HoldReason
from retry.failure import Crashed, Failure, OtherBytes
from retry.policy import Disposition, Stage, ToDlq, ToTier, Wait, is_unsure, verdict
from retry.router import Router
from schemas import codec
from schemas.errors import IdsDisagree, Malformed, UnknownSchema

_OUTAGE_SECONDS = (1.0, 30.0)


@dataclass(slots=True)
class _Ending:
    """One record on its way out: what Redis must hear, and what happens when it has answered."""

    record: Record
    release: Release | None  # None: COMPLETE
    outcome: str
    hold: tuple[float, HoldReason] | None = None


@dataclass(slots=True)
class _Routing:
    """What a copy under way will mean once it is confirmed."""

    record: Record
    pair: Pair
    outcome: str
    unsure: bool
    started: bool


class Settlement:
    """Settles records in the only orders that lose nothing.

    Success: effect, COMPLETE, offset. Failure: delivery report of the copy, RELEASE, offset. A claim
    that answers LOST is claimed again. Calls that Redis did not answer are kept and repeated.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        tiers: tuple[int, ...],
        lanes: Lanes,
        ledger: OffsetLedger,
        claims: Claims | None,
        in_flight: InFlight,
        router: Router[Record],
    ) -> None:
        self._group = group
        self._tiers = tiers
        self._lanes = lanes
        self._ledger = ledger
        self._claims = claims
        self._in_flight = in_flight
        self._router = router
        self.resting_until = 0.0  # monotonic seconds; the provider asked the whole group to slow down
        self._endings: list[_Ending] = []
        self._routing: dict[int, _Routing] = {}
        self._redis_ahead_ms = 0
        self.tally = Tally()
        self._complaints = Complaints()

    @property
    def unroutable(self) -> int:
        """How many copies could not be written so far, and wait."""
        return self._router.unroutable

    def finished(self, result: Result) -> None:
        """Take a handler's result. The handler's thread has returned."""
        self.tally.durations(result.seconds)
        if result.error is None:
            self.tally.ages(result.occurred_at)
            if self._claims is None:
                self._resolve_all(result.records, result.outcome)
                return
        for record in result.records:
            if record.abandoned:
                continue
            if isinstance(result.error, NotReached):
                self._lanes.hold(record, 0.0, HoldReason.KEY)
            elif record.lost:
                self._claim_again(record)  # another owner may have it by now: mark nothing, route nothing
            elif result.error is None:
                self._endings.append(_Ending(record, None, result.outcome))
            elif result.stage in (Stage.DECODE, Stage.VALIDATE):
                self.tally.unreadable(result.error)
                poison = ToDlq(Disposition.POISON)
                self._route(record, poison, result.error, result.stage, unsure=record.maybe_done)
            else:
                self.failed(record, result.error)

    def failed(self, record: Record, error: BaseException) -> None:
        """Act on a handler that raised, came back too late, or never came back."""
        group = self._group
        # Whatever this run promises, an earlier one may have had its effect: a batch call that failed, for one.
        unsure = record.maybe_done or is_unsure(error, permanent=group.permanent, outage=group.outage)
        attempts = record.story.attempts + 1
        decided = verdict(error, attempts=attempts, tiers=self._tiers, permanent=group.permanent, outage=group.outage)
        if isinstance(decided, Wait):
            self._complaints.held(decided.reason, error)
            self._wait(record, decided, unsure=unsure)
        else:
            self._route(record, decided, error, Stage.HANDLE, unsure=unsure)

    def skip(self, record: Record, outcome: Outcome) -> None:
        """Resolve a record that Redis says needs nothing."""
        self._resolve(record, outcome)

    def dead_letter(self, record: Record, disposition: Disposition) -> None:
        """Send a record to the dead letters that was not run; it keeps its claim, if it has one, until confirmed."""
        if record.token not in self._in_flight:
            record.token = ""  # refused by Redis (MISMATCH): there is nothing to release
        self._route(
            record, ToDlq(disposition), _why_not_run(disposition, record), Stage.CLAIM, unsure=record.maybe_done
        )

    def unreadable(self, record: Record) -> None:
        """Send a record that names no event to the dead letters, past lanes and claims."""
        error = (
            IdsDisagree("no ce_id header names the event that is in the payload")
            if record.schema_known
            else Malformed("the value is no framed event of ours, or no ce_id header names its event")
        )
        self.tally.unreadable(error)
        self._route(record, ToDlq(Disposition.POISON), error, Stage.DECODE, unsure=False)

    def give_back(self, record: Record) -> None:
        """Release a claim whose handler did not start, granted or unanswered; the record is claimed again."""
        self._endings.append(_Ending(record, _release(record, started=False), "", (0.0, HoldReason.BUSY)))

    def confirm(self, now: float) -> None:
        """Take the delivery reports of copies; each confirmed one is released next."""
        for confirmed in self._router.poll(now):
            routing = self._routing.pop(id(confirmed.ticket))
            record = routing.record
            if record.token:
                release = Release(record.event_id, record.token, routing.unsure, routing.started, routing.pair)
                self._endings.append(_Ending(record, release, routing.outcome))
            else:
                self._resolve(record, routing.outcome)

    def flush(self) -> None:
        """Tell Redis what ended, in one pipeline per kind.

        Raises `ClaimsDown` without an answer; everything is then kept and told again.
        """
        if self._claims is None or not self._endings:
            return
        completing = [ending for ending in self._endings if ending.release is None]
        if completing:
            answers = self._claims.complete([(e.record.event_id, e.record.token) for e in completing])
            self._endings = [ending for ending in self._endings if ending.release is not None]
            for ending, ok in zip(completing, answers, strict=True):
                if ok:
                    self._resolve(ending.record, ending.outcome)
                else:
                    self._claim_again(ending.record)
        releasing = self._endings
        if releasing:
            # LOST changes nothing here: a confirmed copy is safe, and a claim that is gone is given back.
            self._claims.release([ending.release for ending in releasing if ending.release is not None])
            self._endings = []
            for ending in releasing:
                if ending.hold is None:
                    self._resolve(ending.record, ending.outcome)
                else:
                    self._claim_again(ending.record, *ending.hold)

    def renew(self) -> None:
        """Renew every claim in hand; a LOST one discards its result when it comes.

        Raises `ClaimsDown` without an answer.
        """
        if self._claims is None:
            return
        self._redis_ahead_ms = self._claims.time_ms() - clock.wall_ms()
        records = list(self._in_flight)
        if records:
            for record, ok in zip(records, self._claims.renew([(r.event_id, r.token) for r in records]), strict=True):
                record.lost = record.lost or not ok

    def __len__(self) -> int:
        """Return how many records wait for Redis or for a delivery report."""
        return len(self._endings) + len(self._routing)

    def owes(self, places: Collection[Place]) -> bool:
        """Return whether a record of these partitions waits for Redis or for a delivery report."""
        waiting = [*(e.record for e in self._endings), *(r.record for r in self._routing.values())]
        return any(record.place in places for record in waiting)

    def _wait(self, record: Record, decided: Wait, *, unsure: bool) -> None:
        now = clock.monotonic()
        if decided.reason is HoldReason.THROTTLED:
            self.resting_until = max(self.resting_until, now + (decided.seconds or 1.0))
        first, most = _OUTAGE_SECONDS
        seconds = decided.seconds or min(most, first * 2**record.outages) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        record.outages += 1
        if self._claims is None:
            self._claim_again(record, now + seconds, decided.reason)
            return
        self._endings.append(
            _Ending(record, _release(record, started=True, unsure=unsure), "", (now + seconds, decided.reason))
        )

    def _route(
        self, record: Record, decided: ToTier | ToDlq, error: BaseException, stage: Stage, *, unsure: bool
    ) -> None:
        attempts = record.story.attempts + (stage is Stage.HANDLE)
        failure = Failure.of(error, stage=stage, attempts=attempts, at_ms=clock.wall_ms() + self._redis_ahead_ms)
        pair = self._router.send(record, record, decided, failure)
        to = "dlq" if isinstance(decided, ToDlq) else f"{decided.seconds}s"
        self.tally.copy(to, error)
        outcome = "dead_lettered" if to == "dlq" else "retried"
        self._routing[id(record)] = _Routing(record, pair, outcome, unsure, record.started)

    def _resolve(self, record: Record, outcome: str) -> None:
        """Let go of a record that needs nothing more: its offset, its lane, its token."""
        self._ledger.resolve(record.place, record.offset, record.epoch)
        self.tally.resolved(record.topic, outcome)
        self._leave(record)
        self._lanes.done(record)

    def _resolve_all(self, records: list[Record], outcome: str) -> None:
        """Let go of records that nothing was claimed for, partition by partition."""
        for assignment, part in groupby(records, attrgetter("assignment")):
            done = [record for record in part if not record.abandoned]
            if done:
                self._ledger.resolve_all(
                    assignment.place, [record.message.offset() for record in done], assignment.epoch
                )
                self._lanes.done_all(done)
                self.tally.resolved(assignment.topic, outcome, len(done))

    def _claim_again(self, record: Record, until: float = 0.0, reason: HoldReason = HoldReason.BUSY) -> None:
        self._leave(record)
        if self._ledger.epoch(record.place) == record.epoch:
            self._lanes.hold(record, until, reason)
        else:
            self._lanes.done(record)  # somebody else's by now

    def _leave(self, record: Record) -> None:
        for behind in self._in_flight.remove(record):
            self._lanes.wake(behind)


def _why_not_run(disposition: Disposition, record: Record) -> Exception:
    """Return what stands in the headers of a dead letter whose handler was not called."""
    match disposition:
        case Disposition.POISON_CRASH:
            return Crashed("three runs of this event took the process with them")
        case Disposition.MISMATCH:
            return OtherBytes("this event id came with other bytes before")
        case _:
            return UnknownSchema(codec.frame_id(record.value) or 0)


def _release(record: Record, *, started: bool, unsure: bool = False) -> Release:
    return Release(record.event_id, record.token, unsure, started, None)
