"""Orders that flow to a group, others that join it, and the group as the broker sees it: never a worker's own words."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    OffsetSpec,
    ResourceType,
)

from orderflow.core import clock, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics
from orderflow.testing import order_created
from schemas import codec
from schemas.headers import event_headers
from tests.outbox_flow import wait_until

Place = tuple[str, int]


def with_protocol(settings: Settings, protocol: str) -> Settings:
    """Return the settings with another group protocol, `classic` or `consumer`."""
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"group_protocol": protocol})})


class OrderFlow:
    """Publishes new orders from a thread, one for each partition at a time; knows which were acknowledged."""

    def __init__(self, settings: Settings, *, pause_seconds: float = 0.05) -> None:
        self._settings = settings
        self._pause = pause_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: list[BaseException] = []
        self.acknowledged: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if kind is None:
            self.stop()

    def wait_for_more(self, orders: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + orders
        wait_until(lambda: len(self.acknowledged) >= goal)

    def stop(self) -> None:
        """Stop publishing; everything is acknowledged when this returns."""
        self._ended.set()
        self._thread.join()
        assert not self._failed, self._failed

    def _run(self) -> None:
        publisher: Publisher[str] = Publisher(kafka.producer_config(self._settings.kafka))
        try:
            while not self._ended.wait(self._pause):
                for partition in range(self._settings.kafka.partitions):
                    order = order_created()
                    key, value, headers = str(order.order_id).encode(), codec.encode(order), event_headers(order)
                    sent = publisher.send(
                        str(order.event_id),
                        self._settings.kafka.source_topic,
                        key=key,
                        value=value,
                        headers=headers,
                        partition=partition,
                    )
                    assert sent, "the producer's queue is full"
                self._take(publisher)
            until = clock.monotonic() + 120
            while len(publisher):
                assert clock.monotonic() < until, f"{len(publisher)} orders have no report"
                self._take(publisher, 0.1)
        except BaseException as failed:  # noqa: BLE001 - told below, in the test's own thread
            self._failed.append(failed)

    def _take(self, publisher: Publisher[str], timeout: float = 0.0) -> None:
        for report in publisher.poll(timeout):
            assert report.error is None, report
            self.acknowledged.append(report.ticket)


class GroupWatch:
    """Samples a group's committed offsets from a thread; leaving it checks them.

    Committed offsets never go back, not even for a moment, and none passes its partition's end.
    """

    def __init__(self, settings: Settings, topics: GroupTopics) -> None:
        self._settings = settings
        self._topics = topics
        self._admin = AdminClient(kafka.connection(settings.kafka))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._moved_at: dict[Place, float] = {}
        self.went_back: list[tuple[float, Place, int, int | None]] = []
        self.committed: Mapping[Place, int] = {}
        self.samples = 0
        self.longest_stand: dict[Place, float] = defaultdict(float)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.samples)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Assert what no commit may do."""
        assert not self.went_back, f"commits went back: {self.went_back}"
        ends = self.ends()
        beyond = {place: offset for place, offset in self.committed.items() if offset > ends.get(place, offset)}
        assert not beyond, f"committed beyond the end: {beyond}"

    def source(self) -> dict[int, int]:
        """Return the last sample of the source topic: committed offset by partition."""
        committed = self.committed
        return {partition: at for (topic, partition), at in committed.items() if topic == self._topics.source}

    def ends(self) -> dict[Place, int]:
        """Return the end offset of each partition of the topics that the group reads."""
        answers = self._admin.list_offsets({place: OffsetSpec.latest() for place in self._places()})
        return {(place.topic, place.partition): answer.result(30).offset for place, answer in answers.items()}

    def wait_all_move(self, seconds: float, *, but: Callable[[], set[Place]] = set) -> None:
        """Wait until the committed offset of every partition of the source is higher than now, `but` of some."""
        before = self.source()
        places = {(self._topics.source, partition) for partition in range(self._settings.kafka.partitions)}
        wait_until(
            lambda: all(self.source().get(at, 0) > before.get(at, 0) for _, at in places - but()),
            seconds,
        )

    def forget_stands(self) -> None:
        """Measure from now on how long a partition's committed offset stands still."""
        now = clock.monotonic()
        self._moved_at = dict.fromkeys(self._moved_at, now)
        self.longest_stand.clear()

    def described(self) -> ConsumerGroupDescription:
        """Return the group as its coordinator describes it."""
        # Without a time-out of its own, since one that passes may abort the process (see below).
        (answer,) = self._admin.describe_consumer_groups([self._topics.group_id]).values()
        described: ConsumerGroupDescription = answer.result(30)
        return described

    def coordinator(self) -> int:
        """Return the broker that coordinates the group; waits while none does."""
        found: list[int] = []

        def ask() -> bool:
            with suppress(KafkaException, TimeoutError):
                found.append(self.described().coordinator.id)
            return bool(found)

        wait_until(ask)
        return found[0]

    def is_stable(self) -> bool:
        """Return whether no rebalance is under way."""
        return self.described().state == ConsumerGroupState.STABLE

    def owners(self) -> dict[str, set[Place]]:
        """Return who owns what: member id to partitions."""
        return {
            member.member_id: {(place.topic, place.partition) for place in member.assignment.topic_partitions}
            for member in self.described().members
        }

    def is_shared_by(self, members: int) -> bool:
        """Return whether the group is stable, has so many members, and each partition of each topic one owner."""
        described = self.described()
        owned = [
            (place.topic, place.partition)
            for member in described.members
            for place in member.assignment.topic_partitions
        ]
        wanted = [(place.topic, place.partition) for place in self._places()]
        return (
            described.state == ConsumerGroupState.STABLE
            and len(described.members) == members
            and sorted(owned) == sorted(wanted)
        )

    def wait_shared_by(self, members: int, seconds: float = 30.0) -> None:
        """Wait until the group is stable with so many members, and nothing is owned twice or by nobody."""
        wait_until(lambda: self.is_shared_by(members), seconds)

    def _run(self) -> None:
        # Not the admin client: librdkafka 2.16 aborts the process when a group's coordinator is found after the
        # request that looked for it has timed out. This one joins nothing, since it subscribes to nothing.
        reader = Consumer({**kafka.connection(self._settings.kafka), "group.id": self._topics.group_id})
        try:
            while not self._ended.wait(0.03):
                with suppress(KafkaException):
                    found = reader.committed(self._places(), timeout=5)
                    if all(place.error is None for place in found):
                        self._note(
                            {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}
                        )
        finally:
            reader.close()

    def _places(self) -> list[TopicPartition]:
        partitions = range(self._settings.kafka.partitions)
        return [TopicPartition(topic, partition) for topic in self._topics.subscribed for partition in partitions]

    def _note(self, committed: Mapping[Place, int]) -> None:
        now = clock.monotonic()
        for place, before in self.committed.items():
            after = committed.get(place)
            if after is None or after < before:
                self.went_back.append((round(now, 2), place, before, after))
        for place, at in committed.items():
            if at != self.committed.get(place):
                self._moved_at[place] = now
            stands = now - self._moved_at[place]
            self.longest_stand[place] = max(self.longest_stand[place], stands)
        self.committed = committed
        self.samples += 1


@contextmanager
def outsider(settings: Settings, topics: GroupTopics) -> Iterator[Callable[[], set[Place]]]:
    """Join the group as a member that resolves nothing, and leave it at the end; yields what it owns now."""
    owned: set[Place] = set()
    ended = threading.Event()
    # Seconds of a test are few; nobody asks for fast fetches here.
    config = kafka.consumer_config(settings.kafka, topics.group_id, max_poll_seconds=300)
    consumer = Consumer(config)

    def assigned(_consumer: Any, partitions: list[TopicPartition]) -> None:
        owned.update((place.topic, place.partition) for place in partitions)

    def gone(_consumer: Any, partitions: list[TopicPartition]) -> None:
        owned.difference_update((place.topic, place.partition) for place in partitions)

    def poll() -> None:
        while not ended.is_set():
            consumer.poll(0.05)

    consumer.subscribe(list(topics.subscribed), on_assign=assigned, on_revoke=gone, on_lost=gone)
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        wait_until(lambda: owned, 30)
        yield lambda: set(owned)
    finally:
        ended.set()
        thread.join()
        consumer.close()


def quick_session(settings: Settings, topics: GroupTopics, seconds: float) -> None:
    """Let the broker take a silent member of this group (KIP-848) for dead so soon."""
    admin = AdminClient(kafka.connection(settings.kafka))
    entry = ConfigEntry(
        "consumer.session.timeout.ms", str(int(seconds * 1000)), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, topics.group_id, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)
