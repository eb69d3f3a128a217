"""Twenty records of one partition fail at the same moment: each is retried once, and nothing is sought again."""

import sys
import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Retry
from schemas import headers as names
from schemas.events import OrderCreated

AT_ONCE = 20


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a worker's consumer is told to move, stop or go on."""
    counted: Counter[str] = Counter()

    class Counting(Consumer):
        def seek(self, *args: Any, **named: Any) -> Any:
            counted["seek"] += 1
            return super().seek(*args, **named)

        def pause(self, *args: Any, **named: Any) -> Any:
            counted["pause"] += 1
            return super().pause(*args, **named)

        def assign(self, *args: Any, **named: Any) -> Any:
            counted["assign"] += 1
            return super().assign(*args, **named)

        def incremental_assign(self, *args: Any, **named: Any) -> Any:
            counted["assign"] += 1
            return super().incremental_assign(*args, **named)

    users = [module for name, module in sys.modules.items() if name.startswith("consumers.")]
    for module in users:
        if getattr(module, "Consumer", None) is Consumer:
            monkeypatch.setattr(module, "Consumer", Counting)
    return counted


def test_none_is_lost_and_each_costs_one_copy(few_partitions: Settings, calls: Counter[str]) -> None:
    settings = tuned(few_partitions, slots=AT_ONCE)
    orders = [order_created() for _ in range(AT_ONCE)]
    all_are_running = threading.Barrier(AT_ONCE)
    runs: Counter[tuple[str, int]] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        runs[str(event.event_id), delivery.attempt] += 1
        if delivery.attempt == 1:
            all_are_running.wait(60)
            raise Retry("all at once")

    with GroupHarness(group, settings) as harness:
        harness.publish(*orders)
        harness.wait_drained(60)
        assert harness.dead_letters() == []
        assert harness.committed() == harness.ends() == {0: AT_ONCE}
        (tier,) = harness.topics.tiers
        copies = harness.records(tier)
    events = {str(order.event_id) for order in orders}
    assert runs == {(event, attempt): 1 for event in events for attempt in (1, 2)}
    assert Counter(copy.header(names.CE_ID) for copy in copies) == dict.fromkeys(events, 1)
    assert calls.pop("assign") >= 1, "the worker's consumer was not the one that counts"
    assert calls == {}
