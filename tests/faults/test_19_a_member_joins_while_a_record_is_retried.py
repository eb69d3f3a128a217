"""A member joins while a record is retried. What must come out: nothing beyond the failing offset is committed."""

import threading
from collections import Counter
from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, WorkerThread, make_group, order_created, tuned
from retry.errors import Outage, Retry
from schemas import codec
from schemas.events import OrderCreated
from schemas.headers import event_headers
from tests.group_flow import GroupWatch, with_protocol
from tests.outbox_flow import wait_until

PARTITIONS, RECORDS, FAILING = 2, 10, 3
WHOLE = pytest.mark.long(whole=True)


@pytest.fixture(params=["consumer", pytest.param("classic", marks=WHOLE)])
def two_partitions(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings with two partitions, so that a second member gets one of them."""
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    quick = tuned(few, retry_seconds=(1,), lease_seconds=2.0, commit_seconds=0.1, revoke_budget_seconds=1.0)
    return with_protocol(quick, request.param)


def claims_of(worker: WorkerThread) -> float:
    """Return how many claims a worker has asked for: the rest of a partition was met, too."""
    return sum(
        sample.value
        for metric in worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "orderflow_claims_total"
    )


@pytest.mark.long
@pytest.mark.parametrize("where", ["held", "running", pytest.param("in_its_tier", marks=WHOLE)])
def test_nothing_beyond_it_is_committed_until_it_is_done(two_partitions: Settings, where: str) -> None:
    orders = [[order_created() for _ in range(RECORDS)] for _ in range(PARTITIONS)]
    failing = {mine[FAILING].event_id for mine in orders}
    healed = threading.Event()
    tried: Counter[object] = Counter()
    done: Counter[object] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        tried[event.event_id] += 1
        if event.event_id in failing:
            if where == "in_its_tier" and delivery.attempt == 1:
                raise Retry("451")
            if where == "running":
                healed.wait(100)
            elif not healed.is_set():
                raise Outage("the provider is down")
        done[event.event_id] += 1

    with GroupHarness(group, two_partitions) as harness, GroupWatch(two_partitions, harness.topics) as watch:
        topic = next(iter(harness.topics.tiers)) if where == "in_its_tier" else harness.topics.source
        limit = 0 if where == "in_its_tier" else FAILING
        for partition, mine in enumerate(orders):
            records = [(str(e.order_id).encode(), codec.encode(e), event_headers(e)) for e in mine]
            harness.publish_raw(records, partition=partition)
        wait_until(lambda: len(done) == PARTITIONS * (RECORDS - 1) and failing <= tried.keys())
        wait_until(lambda: sum(watch.source().values()) >= PARTITIONS * FAILING)

        def nothing_beyond_it_is_committed() -> None:
            samples = watch.samples
            wait_until(lambda: watch.samples > samples + 5)
            for partition in range(PARTITIONS):
                assert watch.committed.get((topic, partition), 0) <= limit

        nothing_beyond_it_is_committed()
        joined = harness.start_worker()
        watch.wait_shared_by(2, 60)
        # It has met the failing record, and what stands behind it.
        wait_until(lambda: claims_of(joined) >= (1 if where == "in_its_tier" else RECORDS - FAILING))
        nothing_beyond_it_is_committed()
        assert not failing & done.keys()
        healed.set()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
        assert harness.committed() == harness.ends() == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert done == Counter(order.event_id for mine in orders for order in mine)
