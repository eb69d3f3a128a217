"""A worker on a real broker and a real Redis: the ordinary ways of an event through a group."""

import threading
from collections import Counter
from typing import Any

import pytest

from consumers.runtime.group import Delivery, Outcome
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, order_paid, tuned
from retry.errors import Reject, Retry
from schemas import headers as names
from schemas.events import Event, OrderCancelled, OrderCreated


def test_every_event_is_handled_once_and_its_offset_committed(settings: Settings) -> None:
    seen: Counter[str] = Counter()
    lock = threading.Lock()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        with lock:
            seen[str(event.event_id)] += 1

    events = [order_created() for _ in range(500)]
    with GroupHarness(group, settings) as harness:
        harness.publish(*events)
        harness.wait_drained()
        assert harness.committed() == harness.ends()
    assert seen == Counter(str(e.event_id) for e in events)


def test_types_that_the_group_does_not_handle_are_passed_over(settings: Settings) -> None:
    seen = []
    group = make_group()

    @group.on(OrderCancelled)
    def handle(event: OrderCancelled, _delivery: Delivery, _deps: Any) -> None:
        seen.append(event)

    events = [order_created() for _ in range(20)]
    with GroupHarness(group, settings) as harness:
        harness.publish(*events, *(order_paid(e) for e in events))
        harness.wait_drained()
    assert seen == []


def test_a_failing_event_goes_through_every_tier_into_the_dead_letters(settings: Settings) -> None:
    attempts: list[int] = []
    group = make_group()
    (bad, *good) = [order_created() for _ in range(10)]

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        if event.event_id == bad.event_id:
            attempts.append(delivery.attempt)
            raise Retry("the provider said 451")

    with GroupHarness(group, tuned(settings, retry_seconds=(1, 2, 3))) as harness:
        harness.publish(bad, *good)
        harness.wait_drained()
        (letter,) = harness.dead_letters()
        copies = {topic: len(harness.records(topic)) for topic in harness.topics.tiers}
    assert attempts == [1, 2, 3, 4]
    assert list(copies.values()) == [1, 1, 1]
    assert letter.header(names.DLQ_DISPOSITION) == "EXHAUSTED"
    assert letter.integer(names.DLQ_DELIVERY_COUNT) == 4
    assert letter.header(names.DLQ_EXCEPTION_MESSAGE) == "the provider said 451"
    assert letter.key == str(bad.order_id).encode()


def test_a_rejected_event_is_a_dead_letter_at_once(settings: Settings) -> None:
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        raise Reject("no such customer")

    with GroupHarness(group, settings) as harness:
        harness.publish(*(order_created() for _ in range(3)))
        harness.wait_drained()
        letters = harness.dead_letters()
    assert [m.header(names.DLQ_DISPOSITION) for m in letters] == ["PERMANENT"] * 3


def test_a_batch_handler_gets_the_records_of_one_partition_in_order(settings: Settings) -> None:
    batches: list[list[Delivery]] = []
    group = make_group()

    @group.on_batch(OrderCreated)
    def handle(batch: list[tuple[Event, Delivery]], _deps: Any) -> list[Outcome]:
        batches.append([delivery for _, delivery in batch])
        return [Outcome.PROCESSED] * len(batch)

    with GroupHarness(group, settings, workers=0) as harness:
        harness.publish(*(order_created() for _ in range(300)))
        harness.start_worker()
        harness.wait_drained()
    assert sum(map(len, batches)) == 300
    assert max(map(len, batches)) > 1
    for batch in batches:
        assert len({d.partition for d in batch}) == 1
        assert [d.offset for d in batch] == sorted(d.offset for d in batch)


def test_a_batch_that_raises_falls_back_to_one_by_one(settings: Settings) -> None:
    group = make_group()
    events = [order_created() for _ in range(100)]
    done: Counter[str] = Counter()

    @group.on_batch(OrderCreated)
    def handle(batch: list[tuple[Event, Delivery]], _deps: Any) -> None:
        if any(e.event_id == events[7].event_id for e, _ in batch):
            raise Reject("this one is bad")
        done.update(str(e.event_id) for e, _ in batch)

    with GroupHarness(group, settings, workers=0) as harness:
        harness.publish(*events)
        harness.start_worker()
        harness.wait_drained()
        (letter,) = harness.dead_letters()
    assert letter.header(names.CE_ID) == str(events[7].event_id)
    assert len(done) == 99


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_two_workers_share_the_partitions_and_a_stopped_one_hands_over(settings: Settings, protocol: str) -> None:
    seen: Counter[str] = Counter()
    lock = threading.Lock()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        with lock:
            seen[str(event.event_id)] += 1

    events = [order_created() for _ in range(600)]
    kafka = settings.kafka.model_copy(update={"group_protocol": protocol})
    with GroupHarness(group, settings.model_copy(update={"kafka": kafka}), workers=2) as harness:
        harness.publish(*events[:300])
        harness.wait_drained()
        harness.workers[0].stop()
        harness.publish(*events[300:])
        harness.wait_drained()
    assert seen == Counter(str(e.event_id) for e in events)
