"""A retry's delay is longer than the lease and than the poll interval.

What must come out: exactly one attempt per tier, no rebalance.
"""

from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, WorkerThread, make_group, order_created, tuned
from retry.errors import Retry
from schemas.events import OrderCreated
from tests.group_flow import GroupWatch


def rebalances(worker: WorkerThread, group: str) -> dict[str, float]:
    """Return what the worker has counted: `assigned`, `revoked`, `lost`."""
    kinds = ("assigned", "revoked", "lost")
    name, registry = "orderflow_consumer_rebalances_total", worker.metrics.registry
    return {kind: registry.get_sample_value(name, {"group": group, "kind": kind}) or 0 for kind in kinds}


def handled(worker: WorkerThread) -> float:
    """Return how many records the worker has counted as resolved."""
    return sum(
        sample.value
        for metric in worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "orderflow_consumer_records_total"
    )


@pytest.mark.long
def test_there_is_one_attempt_per_tier_and_no_rebalance(settings: Settings, *, short: bool) -> None:
    tiers = (6,) if short else (8, 12)
    attempts: list[tuple[object, int, bool]] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        attempts.append((event.event_id, delivery.attempt, delivery.maybe_done))
        if delivery.attempt <= len(tiers):
            raise Retry("451")

    impatient = tuned(settings, retry_seconds=tiers, lease_seconds=1.0, deadline_seconds=2.0, max_poll_seconds=4.5)
    orders = [order_created() for _ in range(5)]
    with GroupHarness(group, impatient) as harness, GroupWatch(impatient, harness.topics) as watch:
        watch.wait_shared_by(1)
        members = set(watch.owners())
        harness.publish(orders[0])
        harness.wait_until(lambda: len(attempts) == 1, "the first attempt")
        # Counts are told once a second.
        harness.wait_until(lambda: rebalances(harness.workers[0], group.name)["assigned"] > 0, "its assignment")
        before = rebalances(harness.workers[0], group.name)
        harness.publish(*orders[1:])
        harness.wait_drained(60)
        assert set(watch.owners()) == members
        assert watch.is_shared_by(1)
        assert [len(harness.records(tier)) for tier in harness.topics.tiers] == [len(orders)] * len(tiers)
        assert harness.dead_letters() == []
        harness.wait_until(lambda: handled(harness.workers[0]) == len(orders) * (1 + len(tiers)), "its counts")
        after = rebalances(harness.workers[0], group.name)
        assert after == before | {"revoked": 0, "lost": 0}
    expected = [(order.event_id, number, False) for order in orders for number in range(1, len(tiers) + 2)]
    assert sorted(attempts, key=str) == sorted(expected, key=str)
