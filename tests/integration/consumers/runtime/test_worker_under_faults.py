"""A worker whose handlers hang, whose Redis goes, and whose broker restarts."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from consumers.runtime.group import ConsumerGroup, Delivery
from consumers.runtime.worker import HandlerHung
from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.redis import Redis
from orderflow.testing import GroupHarness, WorkerThread, make_group, order_created, tuned
from schemas.events import OrderCreated
from tests.stacks.interface import Stack


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Settings with three partitions, one quick tier and short leases."""
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})
    return tuned(few, retry_seconds=(1,), lease_seconds=2.0, commit_seconds=0.2)


def counting(runs: Counter[str]) -> ConsumerGroup:
    """A group that counts how often it handles each event."""
    group, lock = make_group(), threading.Lock()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        with lock:
            runs[str(event.event_id)] += 1

    return group


def test_a_handler_that_hangs_for_two_deadlines_is_routed_and_its_worker_leaves(quick: Settings) -> None:
    release = threading.Event()
    hanging, *others = [order_created() for _ in range(20)]
    done: list[tuple[OrderCreated, int, bool]] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        if event.event_id == hanging.event_id and delivery.attempt == 1:
            release.wait(300)
        done.append((event, delivery.attempt, delivery.maybe_done))

    with GroupHarness(group, quick, workers=0) as harness:
        harness.publish(hanging, *others)
        worker = WorkerThread(group, tuned(quick, deadline_seconds=1.0))
        harness.wait_until(lambda: not worker.alive, "the worker to leave", 60)
        assert isinstance(worker.error, HandlerHung)
        assert {event for event, _, _ in done} == set(others)
        harness.start_worker()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
        release.set()
    assert (hanging, 2, True) in done
    assert Counter(event.event_id for event, attempt, _ in done if attempt == 2) == {hanging.event_id: 1}


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis that this test may stop."""
    server = Redis(tmp_path_factory.mktemp("redis"), free_ports(1)[0])
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("how", ["stopped", "killed", "hung", "emptied"])
def test_without_redis_work_waits_and_nothing_is_lost_or_burnt(quick: Settings, own_redis: Redis, how: str) -> None:
    runs: Counter[str] = Counter()
    group = counting(runs)
    events = [order_created() for _ in range(300)]
    moved = quick.model_copy(
        update={"redis": quick.redis.model_validate({"url": own_redis.url, "timeout_seconds": 0.3})}
    )
    with GroupHarness(group, moved) as harness:
        harness.publish(*events[:100])
        harness.wait_until(lambda: len(runs) >= 20, "work to flow", 60)
        if how == "emptied":
            with redis.Redis.from_url(own_redis.url) as client:
                client.flushall()
        else:
            {"stopped": own_redis.stop, "killed": own_redis.kill, "hung": own_redis.pause}[how]()
        harness.publish(*events[100:200])
        handled = -1
        while handled != len(runs):  # until what was claimed has ended
            handled = len(runs)
            threading.Event().wait(0.5)
        if how != "emptied":
            assert len(runs) < 200
            assert harness.lag() > 0
        own_redis.resume() if how == "hung" else own_redis.start()
        harness.publish(*events[200:])
        harness.wait_drained(90)
        assert harness.dead_letters() == []
        assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
    assert set(runs) == {str(event.event_id) for event in events}
    if how in ("stopped", "hung"):  # the claims were there again
        again = {event: number for event, number in runs.items() if number > 1}
        assert len(again) <= moved.worker.slots


@pytest.mark.long
def test_a_broker_that_restarts_loses_nothing_and_lag_returns_to_zero(quick: Settings, stack: Stack) -> None:
    runs: Counter[str] = Counter()
    group = counting(runs)
    events = [order_created() for _ in range(200)]
    with GroupHarness(group, quick) as harness:
        harness.publish(*events[:100])
        harness.wait_until(lambda: len(runs) >= 20, "work to flow", 60)
        stack.kafka.kill()
        stack.kafka.start()
        harness.publish(*events[100:])
        harness.wait_drained(90)
        assert harness.dead_letters() == []
        assert harness.committed() == harness.ends()
    assert set(runs) == {str(event.event_id) for event in events}
