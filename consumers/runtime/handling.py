"""One call of a handler: decode, validate, handle; every record comes out in one result."""

from asyncio import CancelledError
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from consumers.runtime.group import RAW, BatchHandler, ConsumerGroup, Outcome
from consumers.runtime.lanes import Run
from consumers.runtime.record import Record
from orderflow.core import clock
from retry.policy import Stage, is_about_us
from schemas import codec
from schemas.errors import InvalidEvent


class DeadlinePassed(Exception):
    """Raised in the handler's place when it came back after its deadline: its effect may have happened."""


class LeaseLost(Exception):
    """Raised in the handler's place when somebody else may hold the claim by now: it is claimed again."""


class NotReached(Exception):
    """Stands for records that were not run, since an earlier one of their run failed: they wait behind it."""


@dataclass(slots=True, eq=False)
class Result:
    """What came out for some records: one outcome for all of them, or an error and the stage that raised it.

    `seconds` are the times inside the handler, one per call; `occurred_at` those of the events whose
    effect is done, as far as they were decoded.
    """

    records: list[Record]
    outcome: Outcome = Outcome.PROCESSED
    error: BaseException | None = None
    stage: Stage = Stage.HANDLE
    seconds: list[float] = field(default_factory=list)
    occurred_at: list[datetime] = field(default_factory=list)


Call = tuple[Callable[..., Any], tuple[Any, ...]]
Ended = tuple[Any, BaseException | None]
Calls = Generator[Call, Ended, None]
"""Yields each handler call to be made, and is sent what it returned and what it raised."""


class Handling:
    """Knows which handler calls a run needs and what their ends mean; used from many threads, keeps nothing.

    The calls are made by whoever drives `calls`, a thread or an event loop. Nothing that a handler raises
    gets out: each record of a run stands in exactly one of the results that are added to `results`.
    """

    def __init__(self, group: ConsumerGroup, dependencies: Any, *, deadline_seconds: float) -> None:
        self._group = group
        self._dependencies = dependencies
        self._deadline = deadline_seconds
        self._decode = codec.default().decode

    def calls(self, runs: Iterable[Run], results: list[Result]) -> Calls:
        """Handle runs one after the other, adding a result for every record."""
        if self._group.batch_handler is not None:
            for run in runs:
                yield from self._batch(run, self._group.batch_handler, results)
            return
        handlers, raw, dependencies = self._group.handlers, self._group.raw, self._dependencies
        monotonic, read, deadline = clock.monotonic, self._read, self._deadline
        for run in runs:
            for number, record in enumerate(run, 1):
                event = read(record, results)
                if event is not None:
                    began = monotonic()
                    returned, error = yield handlers[RAW if raw else event.type_name], (event, record, dependencies)
                    seconds = monotonic() - began
                    if error is None and returned is None and seconds <= deadline:
                        last = results[-1] if results else None
                        if last is None or last.error is not None or last.outcome is not Outcome.PROCESSED:
                            last = Result([])
                            results.append(last)
                        last.records.append(record)
                        last.seconds.append(seconds)
                        if not raw:
                            last.occurred_at.append(event.occurred_at)
                        continue
                    self._ended(record, event, returned, error, seconds, results)
                if number < len(run) and results[-1].error is not None:
                    results.append(Result(run[number:], error=NotReached()))
                    break

    def _batch(self, run: Run, handler: BatchHandler, results: list[Result]) -> Calls:
        if self._group.raw and not self._group.claims:
            batch: list[tuple[Any, Record]] = [(record.message.value(), record) for record in run]
        else:
            batch = [(event, record) for record in run if (event := self._read(record, results)) is not None]
        if not batch:
            return
        began = clock.monotonic()
        returned, error = yield handler, (batch, self._dependencies)
        seconds = clock.monotonic() - began
        if error is None and returned is None and seconds <= self._deadline:
            result = Result([record for _, record in batch])
            result.seconds = [seconds]
            if not self._group.raw:
                result.occurred_at = [event.occurred_at for event, _ in batch]
            results.append(result)
            return
        if error is None:
            outcomes, error = _list_of(returned, len(batch))
            if error is None:
                for (event, record), outcome in zip(batch, outcomes, strict=True):
                    self._ended(record, event, outcome, None, seconds / len(batch), results)
                return
        if len(batch) == 1 or is_about_us(error, permanent=self._group.permanent, outage=self._group.outage):
            self._failed(batch, error, seconds, results)
            return
        for _, record in batch:
            record.maybe_done = True  # the failed call may have had a part of its effect
            yield from self._batch([record], handler, results)

    def _read(self, record: Record, results: list[Result]) -> Any:
        """Return the event; None, with a result, for a record that must not run: lost, unreadable, or too old."""
        if record.lost:
            results.append(Result([record], error=LeaseLost("the lease was over before the handler began")))
            return None
        if self._group.raw:
            return record.message.value()
        try:
            event = self._decode(record.message.value())
        except InvalidEvent as error:
            results.append(Result([record], error=error, stage=Stage.VALIDATE))
            return None
        except Exception as error:  # noqa: BLE001 - hostile bytes may raise anything
            results.append(Result([record], error=error, stage=Stage.DECODE))
            return None
        if self._group.max_age is not None and clock.utc_now() - event.occurred_at > self._group.max_age:
            results.append(Result([record], Outcome.EXPIRED))
            return None
        return event

    def _ended(
        self,
        record: Record,
        event: Any,
        returned: object,
        error: BaseException | None,
        seconds: float,
        results: list[Result],
    ) -> None:
        """Note how one record's handler ended; what is no None and no Outcome may well mean "not done"."""
        if error is None and seconds > self._deadline:
            error = self._too_late(seconds)
        if error is None and returned is not None and not isinstance(returned, Outcome):
            error = TypeError(f"the handler returned {type(returned).__name__}, which is neither None nor an Outcome")
        if error is not None:
            self._failed([(event, record)], error, seconds, results)
            return
        result = Result([record], returned if isinstance(returned, Outcome) else Outcome.PROCESSED)
        result.seconds = [seconds]
        if not self._group.raw:
            result.occurred_at = [event.occurred_at]
        results.append(result)

    def _failed(
        self, batch: list[tuple[Any, Record]], error: BaseException, seconds: float, results: list[Result]
    ) -> None:
        if isinstance(error, CancelledError) and seconds >= self._deadline:
            error = self._too_late(seconds)
        for _, record in batch:
            result = Result([record], error=error)
            result.seconds = [seconds / len(batch)]
            results.append(result)

    def _too_late(self, seconds: float) -> DeadlinePassed:
        return DeadlinePassed(f"the handler came back after {seconds:.1f} s, its deadline is {self._deadline:g} s")


def records_of(call: Call) -> list[Record]:
    """Return the records that a handler call is about."""
    first, second = call[1][:2]
    return [record for _, record in first] if isinstance(first, list) else [second]


def _list_of(returned: Any, events: int) -> tuple[Sequence[object], BaseException | None]:
    """Return what a batch handler said of each event; the error says why it said nothing of the kind."""
    try:
        outcomes = [None] * events if returned is None else list(returned)
    except Exception as error:  # noqa: BLE001 - what it returned may raise anything
        return (), error
    if len(outcomes) != events:
        return (), TypeError(f"the batch handler returned {len(outcomes)} outcomes for {events} events")
    wrong = next((one for one in outcomes if one is not None and not isinstance(one, Outcome)), None)
    if wrong is not None:
        return (), TypeError(f"the batch handler returned {type(wrong).__name__}, which is no Outcome")
    return outcomes, None
