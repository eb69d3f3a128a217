"""A handler times out and leaves the claim behind. Here: what the next delivery of a real worker is told."""

import threading
from typing import Any

from consumers.runtime.group import Delivery
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas import headers as names
from schemas.events import OrderCreated


def test_the_next_delivery_runs_at_once_is_told_and_never_beside_the_late_one(few_partitions: Settings) -> None:
    runs: list[tuple[int, bool, float, float]] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        began = clock.monotonic()
        if delivery.attempt == 1:
            threading.Event().wait(5.0)  # past its deadline, and past one lease, which is renewed meanwhile
        runs.append((delivery.attempt, delivery.maybe_done, began, clock.monotonic()))

    with GroupHarness(group, tuned(few_partitions, deadline_seconds=3.0), workers=2) as harness:
        harness.publish(order_created())
        harness.wait_drained(60)
        assert harness.dead_letters() == []
        (copy,) = harness.records(next(iter(harness.topics.tiers)))
    assert copy.header(names.DLQ_EXCEPTION_CLASS) == "consumers.runtime.handling.DeadlinePassed"
    [(first, told_first, _, ended), (second, told_second, began, _)] = runs
    assert (first, told_first) == (1, False)
    assert (second, told_second) == (2, True)
    assert began > ended
    assert began - ended < few_partitions.worker.retry_seconds[0] + few_partitions.worker.lease_seconds
