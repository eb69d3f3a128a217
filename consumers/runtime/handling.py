"""One call of a handler: decode, validate, handle; every record comes out as one result."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from consumers.runtime.group import ConsumerGroup, Delivery, Outcome
from consumers.runtime.lanes import Run
from consumers.runtime.record import Record
from orderflow.core import clock
from retry.policy import Stage, is_about_us
from schemas import codec
from schemas.errors import InvalidEvent
from schemas.events import Event


class DeadlinePassed(Exception):
    """Raised in the handler's place when it came back after its deadline: its effect may have happened."""


class LeaseLost(Exception):
    """Raised in the handler's place when somebody else may hold the claim by now: it is claimed again."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one handler call did with one record: an outcome, or an error and the stage that raised it."""

    record: Record
    outcome: Outcome
    error: BaseException | None
    stage: Stage
    seconds: float
    occurred_at: datetime | None


class Handling:
    """Calls a group's handlers; used from many threads at once, keeps nothing between calls."""

    def __init__(
        self, group: ConsumerGroup, dependencies: Any, *, deadline_seconds: float, idempotency_epoch: int
    ) -> None:
        self._group = group
        self._dependencies = dependencies
        self._deadline = deadline_seconds
        self._idempotency_epoch = idempotency_epoch

    def handle(self, run: Run) -> Iterator[Result]:
        """Handle a run and yield one result per record; nothing that a handler raises gets out."""
        if self._group.batch_handler is not None:
            yield from self._batch(run)
        else:
            for record in run:
                yield self._one(record)

    def _one(self, record: Record) -> Result:
        began = clock.monotonic()
        event = self._read(record, began)
        if isinstance(event, Result):
            return event
        try:
            handler = self._group.handlers[event.type_name]
            outcome = _outcome(handler(event, self._delivery(event, record), self._dependencies))
        except BaseException as error:  # noqa: BLE001 - also SystemExit: it would end the thread without a word
            return self._result(record, began, event, error=error)
        return self._result(record, began, event, outcome)

    def _batch(self, run: Run) -> Iterator[Result]:
        began = clock.monotonic()
        batch: list[tuple[Record, Event]] = []
        for record in run:
            event = self._read(record, began)
            if isinstance(event, Result):
                yield event
            else:
                batch.append((record, event))
        if not batch:
            return
        try:
            outcomes = self._call(batch)
        except BaseException as error:  # noqa: BLE001 - as in _one
            if len(batch) == 1 or is_about_us(error, permanent=self._group.permanent, outage=self._group.outage):
                yield from (self._result(record, began, event, error=error) for record, event in batch)
                return
        else:
            for (record, event), outcome in zip(batch, outcomes, strict=True):
                yield self._result(record, began, event, outcome)
            return
        for turn, (record, _) in enumerate(batch):
            for waiting, _ in batch[turn:]:
                waiting.started_at = clock.monotonic()  # the time of those before it is not its own
            record.maybe_done = True  # the failed call may have had a part of its effect
            yield from self._batch([record])

    def _call(self, batch: list[tuple[Record, Event]]) -> list[Outcome]:
        handler = self._group.batch_handler
        assert handler is not None  # noqa: S101 - handle() looked
        outcomes = handler([(event, self._delivery(event, record)) for record, event in batch], self._dependencies)
        if outcomes is None:
            return [Outcome.PROCESSED] * len(batch)
        if len(outcomes) != len(batch):
            raise TypeError(f"the batch handler returned {len(outcomes)} outcomes for {len(batch)} events")
        return [_outcome(outcome) for outcome in outcomes]

    def _read(self, record: Record, began: float) -> Event | Result:
        """Return the event, or the result of a record that must not run: lost, unreadable, or too old."""
        if record.lost:
            return self._result(record, began, None, error=LeaseLost("the lease was over before the handler began"))
        try:
            event = codec.decode(record.value or b"")
        except InvalidEvent as error:
            return self._result(record, began, None, error=error, stage=Stage.VALIDATE)
        except Exception as error:  # noqa: BLE001 - hostile bytes may raise anything
            return self._result(record, began, None, error=error, stage=Stage.DECODE)
        if self._group.max_age is not None and clock.utc_now() - event.occurred_at > self._group.max_age:
            return self._result(record, began, event, Outcome.EXPIRED)
        return event

    def _result(
        self,
        record: Record,
        began: float,
        event: Event | None,
        outcome: Outcome = Outcome.PROCESSED,
        *,
        error: BaseException | None = None,
        stage: Stage = Stage.HANDLE,
    ) -> Result:
        seconds = clock.monotonic() - began
        if error is None and seconds > self._deadline:
            error = DeadlinePassed(f"the handler came back after {seconds:.1f} s, its deadline is {self._deadline:g} s")
        return Result(record, outcome, error, stage, seconds, event.occurred_at if event else None)

    def _delivery(self, event: Event, record: Record) -> Delivery:
        return Delivery(
            group=self._group.name,
            event_id=event.event_id,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value or b"",
            headers=record.headers,
            attempt=record.story.attempts + 1,
            replay_count=record.story.replay_count,
            maybe_done=record.maybe_done,
            idempotency_epoch=self._idempotency_epoch,
        )


def _outcome(returned: object) -> Outcome:
    """Return what a handler said; raises `TypeError` for anything else, since False may well mean "not done"."""
    if returned is None:
        return Outcome.PROCESSED
    if not isinstance(returned, Outcome):
        raise TypeError(f"the handler returned {type(returned).__name__}, which is neither None nor an Outcome")
    return returned
