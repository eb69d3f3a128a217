"""A position beyond the log of one of the group's own topics, as a late commit leaves it on a re-created one."""

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from consumers.runtime.group import Delivery
from orderflow.core import kafka
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas import codec
from schemas.events import OrderCreated
from schemas.headers import event_headers


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_the_topic_is_read_from_its_start_and_committed_as_it_is_done(settings: Settings, protocol: str) -> None:
    group = make_group()
    seen: list[tuple[str, int]] = []

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        seen.append((delivery.topic, delivery.offset))

    own = settings.kafka.model_copy(update={"partitions": 2, "group_protocol": protocol})
    few = tuned(settings.model_copy(update={"kafka": own}), commit_seconds=0.1)
    with GroupHarness(group, few, workers=0) as harness:
        lost, beside = list(harness.topics.tiers)[:2]
        pending = [order_created() for _ in range(5)]
        for topic in (lost, beside):
            harness.publish_raw(
                [(b"k", codec.encode(event), event_headers(event)) for event in pending[:3]], topic=topic, partition=0
            )
        request = ConsumerGroupTopicPartitions(harness.topics.group_id, [TopicPartition(lost, 0, 100)])
        admin = AdminClient(kafka.connection(few.kafka))
        (answer,) = admin.alter_consumer_group_offsets([request]).values()
        assert [place.error for place in answer.result(10).topic_partitions] == [None]
        worker = harness.start_worker()
        harness.publish(*pending[3:])
        harness.wait_until(lambda: len(seen) == 5, "each event to be handled once", 60)
        harness.wait_until(lambda: harness.committed(lost).get(0) == 3, "the position to be in the log again")
        harness.wait_drained()
        assert worker.alive
        assert len(seen) == 5
