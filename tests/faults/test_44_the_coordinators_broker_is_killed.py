"""The broker that coordinates the group is killed again and again, one of three.

What must come out: commit errors fade, everything is processed, lag returns to zero by itself.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from consumers.runtime.group import Delivery
from orderflow.core import clock, kafka, log
from orderflow.core.settings import Settings
from orderflow.ops.stack.kafka import Kafka
from orderflow.ops.stack.layout import Layout, Options, Ports
from orderflow.testing import GroupHarness, make_group, tuned
from schemas.events import OrderCreated
from tests.group_flow import GroupWatch, OrderFlow
from tests.outbox_flow import wait_until

WORKERS, PARTITIONS = 2, 3
_log = log.get(__name__)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Kafka]:
    three = Kafka(tmp_path / "three", Layout(Ports.free(3), Options(brokers=3, quick_groups=True, durable=False)))
    try:
        three.start()
        yield three
    finally:
        three.kill()


def all_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=30).topics.values()
    return all(len(partition.isrs) == 3 for topic in topics for partition in topic.partitions.values())


@pytest.mark.long(whole=True)
@pytest.mark.timeout(900)
def test_it_goes_on_each_time_and_commit_errors_fade(settings: Settings, brokers: Kafka) -> None:
    runs: Counter[str] = Counter()
    lock = threading.Lock()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        with lock:
            runs[str(event.event_id)] += 1

    there = settings.kafka.model_copy(
        update={
            "bootstrap_servers": brokers.bootstrap_servers,
            "partitions": PARTITIONS,
            "replication_factor": 3,
        }
    )
    chosen = tuned(settings.model_copy(update={"kafka": there}), retry_seconds=(1,), commit_seconds=0.1)
    admin = AdminClient(kafka.connection(there))
    with (
        GroupHarness(group, chosen, workers=WORKERS) as harness,
        GroupWatch(chosen, harness.topics) as watch,
        OrderFlow(chosen) as flow,
    ):
        watch.wait_shared_by(WORKERS, 60)
        watch.wait_all_move(60)
        for _ in range(5):
            wait_until(lambda: all_in_sync(admin), 120)
            killed = brokers.brokers[watch.coordinator() - 1]
            killed.kill()
            killed_at = clock.monotonic()
            watch.wait_all_move(120)  # by the other two
            assert watch.coordinator() != killed.node_id
            _log.info("all partitions moved again", seconds=round(clock.monotonic() - killed_at, 1))
            killed.start()
            watch.wait_all_move(60)

        def commits(outcome: str) -> float:
            name, labels = "orderflow_consumer_commits_total", {"group": group.name, "outcome": outcome}
            return sum(worker.metrics.registry.get_sample_value(name, labels) or 0 for worker in harness.workers)

        def errors_have_faded() -> bool:
            well, failed = commits("ok"), commits("failed")
            wait_until(lambda: commits("ok") > well + 20)
            return commits("failed") == failed

        wait_until(errors_have_faded)
        flow.stop()
        harness.wait_drained(120)
        assert harness.committed() == harness.ends()
        assert harness.dead_letters() == []
    assert set(runs) == set(flow.acknowledged)
    assert set(runs.values()) == {1}
