"""One record fails without a route, the next succeeds, restart: the failed one comes again."""

import threading
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from consumers.runtime.group import Delivery
from orderflow.core import kafka
from orderflow.core.settings import Settings
from orderflow.ops.provision import topics
from orderflow.testing import GroupHarness, make_group, order_created
from retry.errors import Outage, Reject
from schemas.events import OrderCreated


def test_the_client_commits_and_stores_nothing_by_itself(settings: Settings) -> None:
    config = kafka.consumer_config(settings.kafka, "orderflow.any", max_poll_seconds=300.0)
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False


@pytest.mark.parametrize("failure", [Outage("down"), Reject("no")], ids=["held", "no dead-letter topic"])
def test_the_failed_one_comes_again(few_partitions: Settings, failure: Exception) -> None:
    group = make_group()
    good, bad, *more = [order_created() for _ in range(6)]
    seen: list[OrderCreated] = []
    healed = threading.Event()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        if event.event_id == bad.event_id and not healed.is_set():
            raise failure
        seen.append(event)

    with GroupHarness(group, few_partitions, workers=0) as harness:
        admin = AdminClient(kafka.connection(few_partitions.kafka))
        for deleted in admin.delete_topics([harness.topics.dlq]).values():
            deleted.result(30)
        worker = harness.start_worker()
        harness.publish(good, bad, *more)
        harness.wait_until(lambda: len(seen) == 5, "all but the failing one to be handled", 60)
        harness.wait_until(lambda: harness.committed()[0] > 0, "the commit of the first", 60)
        worker.stop()
        assert harness.committed() == {0: 1}
        healed.set()
        topics.apply(few_partitions, [group.name])
        harness.start_worker()
        harness.wait_drained(60)
        assert harness.committed() == harness.ends()
    assert seen.count(bad) == 1
    assert len(seen) == 6
