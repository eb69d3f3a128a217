"""Executors: whatever the handlers do, each record comes back once, and nobody waits behind a stuck one."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumers.runtime.executors.interface import Executor
from consumers.runtime.executors.loop import EventLoop, LoopExecutor
from consumers.runtime.executors.threads import ThreadExecutor
from consumers.runtime.group import ConsumerGroup, Delivery
from consumers.runtime.handling import DeadlinePassed, Handling, Result
from consumers.runtime.record import Record
from orderflow.testing import make_group
from tests import records

SOON = 20.0


def raw_group(handler: Callable[..., Any], **fields: Any) -> ConsumerGroup:
    group = make_group(claims=False, **fields)
    group.on(bytes)(handler)
    return group


def threads(group: ConsumerGroup, *, slots: int = 4, ahead: bool = True) -> ThreadExecutor:
    return ThreadExecutor(Handling(group, None, deadline_seconds=30.0), slots=slots, ahead=ahead)


@pytest.fixture
def event_loop_thread() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.stop()


def drained(executor: Executor, number: int) -> list[tuple[Record, Result]]:
    """Wait for the results of so many records."""
    found: list[tuple[Record, Result]] = []
    until = time.monotonic() + SOON
    while len(found) < number:
        for result in executor.drain(0.05):
            found += [(record, result) for record in result.records]
        assert time.monotonic() < until, f"{len(found)} of {number} records came back"
    return found


def runs(number: int) -> list[list[Record]]:
    return [[records.make(offset=offset, key=b"%d" % offset)] for offset in range(number)]


def test_each_record_comes_back_exactly_once_from_threads() -> None:
    executor = threads(raw_group(lambda *_: None))
    given = runs(1_000)
    for first in range(0, 1_000, 50):
        executor.start(given[first : first + 50])
    found = drained(executor, 1_000)
    assert sorted(record.offset for record, _ in found) == list(range(1_000))
    drained_all = executor.drain(0.0)
    while executor.busy:
        drained_all += executor.drain(0.05)
    assert drained_all == []


def test_slow_handlers_run_side_by_side() -> None:
    together = threading.Barrier(4)

    def handle(*_: Any) -> None:
        together.wait(SOON)

    executor = threads(raw_group(handle))
    executor.start(runs(4))
    assert [result.error for _, result in drained(executor, 4)] == [None] * 4


def test_nobody_waits_behind_a_handler_that_is_stuck_though_all_were_fast_so_far() -> None:
    stuck, release = threading.Event(), threading.Event()

    def handle(_value: bytes, delivery: Delivery, _deps: Any) -> None:
        if delivery.offset == 500:
            stuck.set()
            release.wait(SOON)

    executor = threads(raw_group(handle))
    given = runs(1_000)
    executor.start(given[:500])
    drained(executor, 500)
    executor.start(given[500:])
    found = drained(executor, 499)
    assert stuck.is_set()
    assert 500 not in [record.offset for record, _ in found]
    assert [record.offset for call in executor.running() for record in call.records] == [500]
    release.set()
    assert [record.offset for record, _ in drained(executor, 1)] == [500]


def test_what_was_done_before_a_stuck_call_is_handed_back_while_it_lasts() -> None:
    release = threading.Event()

    def handle(_value: bytes, delivery: Delivery, _deps: Any) -> None:
        if delivery.offset == 3:
            release.wait(SOON)

    executor = threads(raw_group(handle), slots=1)
    executor.start([[records.make(offset=offset) for offset in range(4)]])
    assert [record.offset for record, _ in drained(executor, 3)] == [0, 1, 2]
    assert executor.busy == 1
    release.set()
    assert [record.offset for record, _ in drained(executor, 1)] == [3]
    while executor.busy:
        executor.drain(0.05)


def test_there_is_room_for_no_more_runs_than_slots_where_claims_are_held() -> None:
    executor = threads(raw_group(lambda *_: None), slots=3, ahead=False)
    executor.start(runs(200)[:3])
    assert executor.room() == 0
    drained(executor, 3)
    for _ in range(50):
        executor.start(runs(3))
        drained(executor, 3)
        while executor.busy:
            executor.drain(0.05)
    assert executor.room() == 3


def test_each_record_comes_back_exactly_once_from_the_loop(event_loop_thread: EventLoop) -> None:
    running, most = 0, 0

    async def handle(_value: bytes, delivery: Delivery, _deps: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if delivery.offset % 100 == 0:
            raise ValueError("one of them")

    handling = Handling(raw_group(handle), None, deadline_seconds=30.0)
    executor = LoopExecutor(handling, event_loop_thread, slots=7, deadline=30.0, ahead=True)
    executor.start(runs(1_000))
    found = drained(executor, 1_000)
    assert sorted(record.offset for record, _ in found) == list(range(1_000))
    failed = [record.offset for record, result in found if isinstance(result.error, ValueError)]
    assert sorted(failed) == list(range(0, 1_000, 100))
    assert most <= 7


def test_a_coroutine_past_its_deadline_is_cancelled_and_its_effect_unsure(event_loop_thread: EventLoop) -> None:
    ended = threading.Event()

    async def handle(*_: Any) -> None:
        try:
            await asyncio.sleep(SOON)
        finally:
            ended.set()

    handling = Handling(raw_group(handle), None, deadline_seconds=0.2)
    executor = LoopExecutor(handling, event_loop_thread, slots=2, deadline=0.2, ahead=True)
    executor.start(runs(1))
    ((_, result),) = drained(executor, 1)
    assert isinstance(result.error, DeadlinePassed)
    assert ended.is_set()


def test_a_batch_of_coroutines_falls_back_to_one_by_one(event_loop_thread: EventLoop) -> None:
    group = make_group(claims=False)
    sizes: list[int] = []

    @group.on_batch(bytes)
    async def handle(batch: list[tuple[bytes, Delivery]], _deps: Any) -> None:
        sizes.append(len(batch))
        if any(delivery.offset == 1 for _, delivery in batch):
            raise ValueError("a bad one")

    executor = LoopExecutor(
        Handling(group, None, deadline_seconds=30.0), event_loop_thread, slots=2, deadline=30.0, ahead=True
    )
    executor.start([[records.make(offset=offset) for offset in range(3)]])
    found = drained(executor, 3)
    assert sizes == [3, 1, 1, 1]
    assert {record.offset: type(result.error) for record, result in found} == {
        0: type(None),
        1: ValueError,
        2: type(None),
    }
