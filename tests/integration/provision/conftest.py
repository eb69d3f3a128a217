"""A cluster with few partitions, and the tools that a test needs beside the product's own."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from orderflow.core.settings import Settings

Live = Callable[[str], None]
Produce = Callable[..., list[int]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 2})})


@pytest.fixture
def admin(settings: Settings) -> AdminClient:
    return AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})


@pytest.fixture
def produce(settings: Settings) -> Produce:
    """Return a function that appends records to a partition and returns the broker's time of each, in ms."""

    def append(topic: str, partition: int, count: int) -> list[int]:
        times: list[int] = []
        producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers})

        def note(error: KafkaError | None, told: Message) -> None:
            assert error is None
            times.append(told.timestamp()[1])

        for _ in range(count):
            producer.produce(topic, b"value", partition=partition, on_delivery=note)
            assert producer.flush(10) == 0
        assert len(times) == count
        return times

    return append


@pytest.fixture(params=["consumer", "classic"])
def join(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Live]:
    """Return a function that makes this process a live member of a Kafka group, by either protocol."""
    members: list[Consumer] = []

    def become_member(group_id: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": settings.kafka.bootstrap_servers,
                "group.id": group_id,
                "group.protocol": request.param,
                "client.id": "a-worker",
                "enable.auto.commit": False,
            }
        )
        members.append(consumer)
        consumer.subscribe([settings.kafka.source_topic])
        for _ in range(300):
            consumer.poll(0.1)
            if consumer.assignment():
                return
        pytest.fail("the member got no partition within 30 s")

    yield become_member
    for member in members:
        member.close()
