"""A broker restarts, or the leader of a partition is killed, while events flow: none missing, order kept."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka.admin import AdminClient

from orderflow.core.settings import Settings
from orderflow.ops.provision import topics
from orderflow.ops.stack.layout import Options
from orderflow.ops.stack.stack import LocalStack
from tests.outbox_flow import OutboxFlow, wait_until
from tests.stacks.interface import Stack

Start = Callable[..., Popen[bytes]]


def all_is_published_in_the_end(flow: OutboxFlow, relay: Popen[bytes]) -> None:
    wait_until(lambda: not flow.unpublished(), 150)
    flow.check()
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(30) == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_broker_restarts(stack: Stack, shop: Settings, start_role: Start, *, short: bool) -> None:
    flow = OutboxFlow(shop)
    relay = start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.2")
    broker = stack.kafka.brokers[0]
    with flow.flowing():
        flow.wait_for_more()
        for end in (broker.kill,) if short else (broker.kill, broker.stop, broker.kill):
            try:
                end()
                flow.add(500, versions=2)
            finally:
                broker.start()
            flow.wait_for_more(500)
    all_is_published_in_the_end(flow, relay)


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[LocalStack]:
    options = Options(brokers=3, quick_groups=True, durable=False)
    with LocalStack.temporary(tmp_path / "three", options) as running:
        yield running


@pytest.mark.long
@pytest.mark.timeout(900)
def test_of_three_brokers_the_leader_is_killed(
    shop: Settings, three_brokers: LocalStack, start_role: Start, *, short: bool
) -> None:
    servers = three_brokers.kafka.bootstrap_servers
    there = shop.model_copy(
        update={"kafka": shop.kafka.model_copy(update={"bootstrap_servers": servers, "replication_factor": 3})}
    )
    topics.apply(there, ())
    flow = OutboxFlow(there)
    admin = AdminClient({"bootstrap.servers": servers})

    def leader() -> int:
        topic = admin.list_topics(there.kafka.source_topic, timeout=30).topics[there.kafka.source_topic]
        return topic.partitions[0].leader

    def all_in_sync() -> bool:
        topic = admin.list_topics(there.kafka.source_topic, timeout=30).topics[there.kafka.source_topic]
        return all(len(partition.isrs) == 3 for partition in topic.partitions.values())

    relay = start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.2", ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS=servers)
    with flow.flowing():
        for _ in range(1 if short else 4):
            flow.wait_for_more()
            wait_until(all_in_sync, 120)
            broker = three_brokers.kafka.brokers[leader() - 1]
            flow.add(500, versions=2)
            broker.kill()
            # The other two go on.
            flow.wait_for_more(500)
            broker.start()
    all_is_published_in_the_end(flow, relay)
