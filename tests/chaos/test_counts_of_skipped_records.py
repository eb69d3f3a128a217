"""Found by the chaos run: a handler skips an event beside events of types that its group does not handle."""

from prometheus_client import CollectorRegistry

from consumers.runtime.group import Outcome
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, order_paid
from schemas.events import OrderCreated


def test_both_kinds_are_counted_and_the_worker_lives_on(shop_tables: Settings) -> None:
    group = make_group()
    group.on(OrderCreated)(lambda _event, _delivery, _dependencies: Outcome.SKIPPED)
    with GroupHarness(group, shop_tables) as harness:
        (worker,) = harness.workers
        for told in (3, 6):
            order = order_created()
            harness.publish(order, order_paid(order), order_paid(order, order_version=3))
            harness.wait_until(lambda told=told: _skipped(worker.metrics.registry) == told, f"{told} to be counted")  # type: ignore[misc]


def _skipped(registry: CollectorRegistry) -> float:
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "orderflow_consumer_records_total" and sample.labels["outcome"] == "skipped"
    )
