"""Handlers take longer than a revoke may. What must come out: each revoke stays inside its budget all the same."""

import threading
from collections import Counter
from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core import clock, log
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas import codec
from schemas.events import OrderCreated
from schemas.headers import event_headers
from tests.group_flow import GroupWatch, outsider, with_protocol
from tests.outbox_flow import wait_until

_log = log.get(__name__)

PARTITIONS, SLOTS, BUDGET_SECONDS = 3, 4, 1.0
# Beside the budget: the time that a group needs to agree, on a machine with other work to do.
REBALANCE_SECONDS = 20.0


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long(whole=True))])
def test_partitions_move_on_while_handlers_still_run_and_nothing_runs_twice(
    settings: Settings, protocol: str, *, short: bool
) -> None:
    orders = [order_created() for _ in range(40)]
    released = threading.Event()
    begun: Counter[object] = Counter()
    ended: Counter[object] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        begun[event.event_id] += 1
        released.wait(200)
        ended[event.event_id] += 1

    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    slow = tuned(few, lease_seconds=2.0, deadline_seconds=140.0, slots=SLOTS, revoke_budget_seconds=BUDGET_SECONDS)
    chosen = with_protocol(slow, protocol)
    with GroupHarness(group, chosen) as harness, GroupWatch(chosen, harness.topics) as watch:
        for number, order in enumerate(orders):
            record = (str(order.order_id).encode(), codec.encode(order), event_headers(order))
            harness.publish_raw([record], partition=number % PARTITIONS)
        wait_until(lambda: len(begun) == SLOTS)
        took = []
        harness.start_worker()
        asked_at = clock.monotonic()
        watch.wait_shared_by(2, BUDGET_SECONDS + REBALANCE_SECONDS)
        took.append(clock.monotonic() - asked_at)
        for _ in range(1 if short else 3):
            asked_at = clock.monotonic()
            with outsider(chosen, harness.topics):
                watch.wait_shared_by(3, 2 * BUDGET_SECONDS + REBALANCE_SECONDS)
            watch.wait_shared_by(2, 2 * BUDGET_SECONDS + REBALANCE_SECONDS)
            took.append(clock.monotonic() - asked_at)
        _log.info("partitions had moved", seconds=took)
        assert not ended
        released.set()
        harness.wait_drained(60)
        assert harness.committed() == harness.ends()
        assert harness.dead_letters() == []
    assert begun == ended == Counter(order.event_id for order in orders)
