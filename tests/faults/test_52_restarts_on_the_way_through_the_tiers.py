"""An ordinary transient failure, or three clean rebalances, are counted as crashes. Here: on a broker."""

from typing import Any

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Retry
from schemas.events import OrderCreated

TIERS = (1, 2, 3)


def test_the_last_tier_is_reached_although_the_worker_is_restarted_before_each(few_partitions: Settings) -> None:
    attempts: list[tuple[int, bool]] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        attempts.append((delivery.attempt, delivery.maybe_done))
        if delivery.attempt <= len(TIERS):
            raise Retry("451")

    with GroupHarness(group, tuned(few_partitions, retry_seconds=TIERS)) as harness:
        harness.publish(order_created())
        for tier in harness.topics.tiers:
            harness.wait_until(lambda tier=tier: sum(harness.ends(tier).values()) == 1, f"a copy on {tier}", 60)  # type: ignore[misc]
            harness.workers[-1].stop()
            harness.start_worker()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
    assert attempts == [(number, False) for number in range(1, len(TIERS) + 2)]


def test_a_record_that_waits_through_clean_restarts_is_no_killer(few_partitions: Settings) -> None:
    runs: list[bool] = []
    healed: list[bool] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        if not healed:
            runs.append(delivery.maybe_done)
            raise ConnectionError("the provider is down")

    group.outage = (ConnectionError,)
    with GroupHarness(group, few_partitions, workers=0) as harness:
        harness.publish(order_created())
        for turn in range(1, 5):
            worker = harness.start_worker()
            harness.wait_until(lambda turn=turn: len(runs) >= turn, f"run {turn}", 60)  # type: ignore[misc]
            worker.stop()
            assert harness.committed() == {0: 0}
        healed.append(True)
        harness.start_worker()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
        assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
    assert not any(runs)
