"""Handling: whatever a handler does, every record comes out as one result."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

import fastavro
import pytest

from consumers.runtime.group import ConsumerGroup, Delivery, Outcome
from consumers.runtime.handling import DeadlinePassed, Ended, Handling, LeaseLost, NotReached, Result
from consumers.runtime.record import Record
from orderflow.core import clock
from orderflow.testing import make_group, order_created
from retry.errors import Outage, Reject, Throttled
from retry.policy import Stage
from schemas import codec
from schemas.errors import InvalidEvent, Malformed, NotFramed, TrailingBytes, UnknownSchema
from schemas.events import Event, OrderCreated

MakeRecord = Callable[..., Record]
Batch = list[tuple[Event, Delivery]]


@dataclass(frozen=True)
class One:
    """What came out for one record."""

    record: Record
    outcome: Outcome
    error: BaseException | None
    stage: Stage
    occurred_at: datetime | None


def drive(handling: Handling, *runs: list[Record]) -> list[Result]:
    """Make the calls as a thread does."""
    results: list[Result] = []
    calls = handling.calls(runs, results)
    call = next(calls, None)
    while call is not None:
        handler, arguments = call
        ended: Ended = (None, None)
        try:
            ended = (handler(*arguments), None)
        except BaseException as error:  # noqa: BLE001 - as the executors do
            ended = (None, error)
        try:
            call = calls.send(ended)
        except StopIteration:
            call = None
    return results


def results(group: ConsumerGroup, *run: Record, deadline: float = 30.0, dependencies: Any = None) -> list[One]:
    handling = Handling(group, dependencies, deadline_seconds=deadline)
    runs = [list(run)] if group.batch_handler else [[record] for record in run]
    return [
        One(record, result.outcome, result.error, result.stage, moment)
        for result in drive(handling, *runs)
        for record, moment in zip_longest(result.records, result.occurred_at)
    ]


def one(group: ConsumerGroup, record: Record, **how: Any) -> One:
    (result,) = results(group, record, **how)
    return result


def returning(what: object) -> ConsumerGroup:
    group = make_group()
    group.on(OrderCreated)(lambda _event, _delivery, _deps: what)
    return group


def raising(error: BaseException) -> ConsumerGroup:
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        raise error

    return group


def test_a_handler_gets_the_event_its_delivery_and_its_dependencies(make_record: MakeRecord) -> None:
    got: list[tuple[Event, Delivery, Any]] = []
    group = make_group()
    group.on(OrderCreated)(lambda event, delivery, deps: got.append((event, delivery, deps)))
    event = order_created()
    record = make_record(event, offset=5, partition=3, attempts=2)
    record.maybe_done = True
    result = one(group, record, dependencies="deps")
    assert (result.outcome, result.error, result.stage) == (Outcome.PROCESSED, None, Stage.HANDLE)
    assert result.occurred_at == event.occurred_at
    ((seen, delivery, deps),) = got
    assert (seen, deps) == (event, "deps")
    assert (delivery.group, delivery.event_id, delivery.value) == ("mine", str(event.event_id), record.value)
    assert (delivery.topic, delivery.partition, delivery.offset) == ("orders", 3, 5)
    assert (delivery.attempt, delivery.replay_count, delivery.maybe_done) == (3, 0, True)
    assert delivery.idempotency_epoch == 7


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_handler_may_return_an_outcome(make_record: MakeRecord, outcome: Outcome) -> None:
    assert one(returning(outcome), make_record()).outcome is outcome


@pytest.mark.parametrize("returned", [False, True, 0, "", "processed", {"status": 250}, []])
def test_anything_else_that_a_handler_returns_is_its_failure(make_record: MakeRecord, returned: object) -> None:
    assert isinstance(one(returning(returned), make_record()).error, TypeError)


@pytest.mark.parametrize("error", [ValueError("x"), Reject("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_nothing_that_a_handler_raises_gets_out(make_record: MakeRecord, error: BaseException) -> None:
    result = one(raising(error), make_record())
    assert (result.error, result.stage) == (error, Stage.HANDLE)


def test_coming_back_after_the_deadline_is_a_failure_whatever_it_returned(make_record: MakeRecord) -> None:
    result = one(returning(None), make_record(), deadline=0.0)
    assert isinstance(result.error, DeadlinePassed)


def test_an_error_after_the_deadline_stays_that_error(make_record: MakeRecord) -> None:
    assert isinstance(one(raising(Reject("x")), make_record(), deadline=0.0).error, Reject)


def test_an_event_over_the_groups_age_is_expired_and_not_handled(make_record: MakeRecord) -> None:
    group = raising(AssertionError("handled"))
    group.max_age = timedelta(hours=1)
    old = order_created(occurred_at=clock.utc_now() - timedelta(hours=2))
    result = one(group, make_record(old))
    assert (result.outcome, result.error) == (Outcome.EXPIRED, None)
    young = order_created(occurred_at=clock.utc_now() - timedelta(minutes=30))
    assert isinstance(one(group, make_record(young)).error, AssertionError)


def good() -> bytes:
    return codec.encode(order_created())


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, NotFramed),
        (b"", NotFramed),
        (b"{}", NotFramed),
        (b"\x00\x7f\xff\xff\xff....", UnknownSchema),
        (good()[:-1], (Malformed, InvalidEvent)),
        (good()[:5], (Malformed, InvalidEvent)),
        (good() + b"\x00", TrailingBytes),
    ],
)
def test_what_cannot_be_read_fails_in_decoding_and_is_not_handled(
    make_record: MakeRecord, value: bytes | None, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    result = one(raising(AssertionError("handled")), make_record(value=value))
    assert isinstance(result.error, error)
    assert result.stage in (Stage.DECODE, Stage.VALIDATE)
    assert result.occurred_at is None


def test_an_event_that_breaks_its_model_fails_in_validation(make_record: MakeRecord) -> None:
    event = order_created()
    entry = codec.default().catalog.newest(event.type_name)
    fields = codec.raw_decode(codec.encode(event)) | {"order_version": -1}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, entry.schema, fields)
    result = one(returning(None), make_record(event, value=codec.encode(event)[:5] + body.getvalue()))
    assert isinstance(result.error, InvalidEvent)
    assert result.stage is Stage.VALIDATE


def batch_group(handler: Callable[[Batch, Any], Any]) -> ConsumerGroup:
    group = make_group()
    group.on_batch(OrderCreated)(handler)
    return group


def test_a_batch_handler_may_return_one_outcome_each(make_record: MakeRecord) -> None:
    run = [make_record(offset=n) for n in range(3)]
    answers: Iterator[list[Outcome | None]] = iter([[None, Outcome.DUPLICATE, Outcome.STALE]])
    found = results(batch_group(lambda _batch, _deps: next(answers)), *run)
    assert [r.record for r in found] == run
    assert [r.outcome for r in found] == [Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE]
    assert [r.error for r in found] == [None] * 3


@pytest.mark.parametrize("returned", [[], [Outcome.PROCESSED], [Outcome.PROCESSED] * 3, [True, True], 5])
def test_a_batch_handler_that_returns_something_else_has_failed(make_record: MakeRecord, returned: object) -> None:
    found = results(batch_group(lambda _batch, _deps: returned), make_record(offset=0), make_record(offset=1))
    assert len(found) == 2
    # [PROCESSED] fits when they are tried one by one.
    fits = isinstance(returned, list) and returned == [Outcome.PROCESSED]
    assert [isinstance(r.error, TypeError) for r in found] == [not fits] * 2


def test_a_batch_that_raises_is_tried_one_by_one_and_told_that_it_may_be_done(make_record: MakeRecord) -> None:
    calls: list[list[tuple[int, bool]]] = []

    def handle(batch: Batch, _deps: Any) -> None:
        calls.append([(delivery.offset, delivery.maybe_done) for _, delivery in batch])
        if any(delivery.offset == 1 for _, delivery in batch):
            raise Reject("1 is bad")

    found = results(batch_group(handle), *(make_record(offset=n) for n in range(3)))
    assert calls == [[(0, False), (1, False), (2, False)], [(0, True)], [(1, True)], [(2, True)]]
    assert [type(r.error) for r in found] == [type(None), Reject, type(None)]


def test_one_by_one_each_has_the_time_of_its_own_call(make_record: MakeRecord) -> None:
    def handle(batch: Batch, _deps: Any) -> None:
        if len(batch) > 1:
            raise ValueError("not together")

    handling = Handling(batch_group(handle), None, deadline_seconds=30.0)
    began = clock.monotonic()
    found = drive(handling, [make_record(offset=n) for n in range(3)])
    assert sum(sum(result.seconds) for result in found) <= clock.monotonic() - began
    assert [len(result.records) for result in found] == [1, 1, 1]


def test_records_of_a_key_behind_one_that_failed_are_not_run(make_record: MakeRecord) -> None:
    seen: list[int] = []
    group = make_group(claims=False)

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        seen.append(delivery.offset)
        if delivery.offset == 1:
            raise Outage("down")

    handling = Handling(group, None, deadline_seconds=30.0)
    found = drive(handling, [make_record(offset=n) for n in range(4)], [make_record(offset=4)])
    assert seen == [0, 1, 4]
    told = [([record.offset for record in result.records], type(result.error)) for result in found]
    assert told == [([0], type(None)), ([1], Outage), ([2, 3], NotReached), ([4], type(None))]


def test_an_undecoded_value_is_handed_over_as_it_is(make_record: MakeRecord) -> None:
    got: list[tuple[bytes, Delivery]] = []
    group = make_group(claims=False)
    group.on(bytes)(lambda value, delivery, _deps: got.append((value, delivery)))
    (result,) = results(group, make_record(value=b"no frame at all"))
    assert (result.error, got[0][0]) == (None, b"no frame at all")


@pytest.mark.parametrize("error", [Outage("down"), Throttled("slow", after=1.0), ConnectionError("down")])
def test_an_outage_fails_the_whole_batch_at_once(make_record: MakeRecord, error: Exception) -> None:
    calls: list[int] = []

    def handle(batch: Batch, _deps: Any) -> None:
        calls.append(len(batch))
        raise error

    group = batch_group(handle)
    group.outage = (ConnectionError,)
    found = results(group, *(make_record(offset=n) for n in range(3)))
    assert calls == [3]
    assert [r.error for r in found] == [error] * 3


def test_a_permanent_error_of_one_event_does_not_reject_its_batch_though_its_base_class_is_an_outage(
    make_record: MakeRecord,
) -> None:
    bad = order_created()
    group = make_group(permanent=(FileNotFoundError,), outage=(OSError,))

    @group.on_batch(OrderCreated)
    def handle(batch: Batch, _deps: Any) -> None:
        if any(event == bad for event, _ in batch):
            raise FileNotFoundError

    first, second, third = make_record(), make_record(bad, offset=1), make_record(offset=2)
    errors = {result.record.offset: result.error for result in results(group, first, second, third)}
    assert (errors[0], errors[2]) == (None, None)
    assert isinstance(errors[1], FileNotFoundError)


def test_what_cannot_be_read_leaves_the_rest_of_its_batch_alone(make_record: MakeRecord) -> None:
    seen: list[int] = []

    def handle(batch: Batch, _deps: Any) -> None:
        seen.extend(delivery.offset for _, delivery in batch)

    run = [make_record(offset=0), make_record(offset=1, value=b"garbage"), make_record(offset=2)]
    found = results(batch_group(handle), *run)
    assert seen == [0, 2]
    assert {r.record.offset: type(r.error) for r in found} == {0: type(None), 1: NotFramed, 2: type(None)}
    assert results(batch_group(handle), make_record(value=b"garbage"))[0].stage is Stage.DECODE


def test_a_record_whose_lease_was_lost_while_it_waited_for_a_thread_is_not_run(make_record: MakeRecord) -> None:
    seen: list[int] = []

    def handle(batch: Batch, _deps: Any) -> None:
        seen.extend(delivery.offset for _, delivery in batch)

    found = results(batch_group(handle), make_record(offset=0, lost=True), make_record(offset=1))
    assert seen == [1]
    assert type(found[0].error) is LeaseLost
