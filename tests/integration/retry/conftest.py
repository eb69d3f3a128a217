"""A group's topics on the real broker, a router over them, and what they hold."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from orderflow.core import clock, kafka
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics
from orderflow.ops.provision import topics as provision
from retry.failure import Failure
from retry.policy import Stage
from retry.router import Confirmed, Copy, Router
from retry.story import Story
from schemas.headers import Headers

DEADLINE_SECONDS = 30.0


@dataclass
class Record:
    """A record of the source as the router gets it."""

    partition: int = 0
    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: Headers = field(default_factory=list)
    offset: int = 7
    topic: str = "orders"

    @property
    def story(self) -> Story:
        return Story.read(self.headers, own_topic=False, origin=(self.topic, self.partition, self.offset, 1))


@dataclass
class Bench:
    """The parts of one test."""

    settings: Settings
    topics: GroupTopics
    failure: Failure

    def record(self, **changes: object) -> Record:
        return Record(**changes)  # type: ignore[arg-type]

    def router(self, **config: object) -> Router[str]:
        return Router(kafka.Publisher[Copy[str]](kafka.producer_config(self.settings.kafka) | config), self.topics)

    def confirm(self, router: Router[str], count: int, seconds: float = DEADLINE_SECONDS) -> list[Confirmed[str]]:
        """Poll until so many copies are confirmed."""
        confirmed: list[Confirmed[str]] = []
        self.poll_until(router, lambda: len(confirmed) >= count, seconds, confirmed)
        return confirmed

    def poll_until(
        self,
        router: Router[str],
        condition: Callable[[], bool],
        seconds: float = DEADLINE_SECONDS,
        into: list[Confirmed[str]] | None = None,
    ) -> None:
        deadline = clock.monotonic() + seconds
        while not condition():
            assert clock.monotonic() < deadline, f"{len(router)} copies are not confirmed after {seconds} s"
            found = router.poll(clock.monotonic())
            assert into is not None or not found
            (into if into is not None else []).extend(found)

    def read(self, topic: str, count: int) -> list[Message]:
        """So many records of all partitions of a topic, from the log's start."""
        config = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(kafka.connection(self.settings.kafka) | config)
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            found: list[Message] = []
            deadline = clock.monotonic() + DEADLINE_SECONDS
            while len(found) < count:
                assert clock.monotonic() < deadline, f"{topic} holds {len(found)} records, not {count}"
                message = consumer.poll(0.1)
                if message is not None:
                    assert message.error() is None
                    found.append(message)
            return found
        finally:
            consumer.close()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    small = settings.kafka.model_copy(update={"partitions": 3, "max_message_bytes": 100_000})
    return settings.model_copy(update={"kafka": small})


@pytest.fixture
def bench(settings: Settings) -> Bench:
    provision.apply(settings, ["email"])
    topics = GroupTopics(settings.kafka.source_topic, "email", settings.worker.retry_seconds)
    return Bench(settings, topics, Failure(Stage.HANDLE, "KeyError", "", "", "f" * 16, 1, 1_700))
