"""The whole source topic, from its first record to where it ended when it was opened; no group, no commit."""

from collections.abc import Iterator
from typing import Any, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from orderflow.core import clock, kafka
from orderflow.core.errors import Misconfigured, PartialOrUnknown
from orderflow.core.settings import Settings

_BATCH = 1_000
_TICK_SECONDS = 0.5


class SourceLog:
    """Iterates the records of the source topic once; use it as a context manager.

    `total` is the number of offsets to pass, `passed` how many were; offsets without a record
    (transaction markers) count too. `unread` is what could not be read: a deleted beginning, or what
    lies behind a transaction that is still open.
    """

    def __init__(self, settings: Settings, *, patience_seconds: float = 30.0) -> None:
        """Find the ends. Raises `Misconfigured` when the cluster or the topic is not there."""
        self._topic = settings.kafka.source_topic
        self._patience = patience_seconds
        client = kafka.admin(settings.kafka)
        places = _places(client, self._topic, settings.kafka.start_timeout_seconds)
        # Uncommitted: the consumer's own watermarks would not count what an open transaction hides.
        self._next = _offsets(client, places, OffsetSpec.earliest())
        self._ends = _offsets(client, places, OffsetSpec.latest())
        self.unread = sum(self._next.values())
        self.total = sum(self._ends.values()) - self.unread
        self._consumer = Consumer(_config(settings))

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self._consumer.close()

    @property
    def passed(self) -> int:
        """How many offsets were passed so far."""
        return self.total - sum(self._ends[partition] - offset for partition, offset in self._next.items())

    def __iter__(self) -> Iterator[Message]:
        """Yield every record below the ends, in order within each partition.

        Raises `PartialOrUnknown` when the cluster falls silent or refuses a partition.
        """
        open_partitions = {p for p, offset in self._next.items() if offset < self._ends[p]}
        self._consumer.assign([TopicPartition(self._topic, p, self._next[p]) for p in open_partitions])
        heard = clock.monotonic()
        while open_partitions:
            messages = self._poll()
            if messages:
                heard = clock.monotonic()
            elif clock.monotonic() - heard > self._patience:
                raise PartialOrUnknown(
                    f"Kafka has sent nothing of {self._topic} for {self._patience:.0f} s, "
                    f"{self.passed:,} of {self.total:,} offsets were read; run it again when the cluster is well"
                )
            for message in messages:
                partition, offset = _position(message)
                if partition not in open_partitions:
                    continue
                if message.error() is not None:
                    self._at_end(partition, offset, message.error())
                    open_partitions.discard(partition)
                    continue
                if offset < self._ends[partition]:
                    yield message
                self._next[partition] = min(offset + 1, self._ends[partition])
                if offset + 1 >= self._ends[partition]:
                    open_partitions.discard(partition)
                    self._consumer.pause([TopicPartition(self._topic, partition)])

    def _poll(self) -> list[Message]:
        first = self._consumer.poll(_TICK_SECONDS)
        return [first, *self._consumer.consume(_BATCH - 1, 0)] if first is not None else []

    def _at_end(self, partition: int, offset: int, error: KafkaError | None) -> None:
        if error is None or error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
            said = error.str() if error else "no reason given"
            raise PartialOrUnknown(
                f"{self._topic} partition {partition} cannot be read: {said}; "
                f"{self.passed:,} of {self.total:,} offsets were read"
            )
        # Markers at the end were passed; what an open transaction hides was not.
        reached = min(offset, self._ends[partition])
        self._next[partition] = reached
        self.unread += self._ends[partition] - reached


def _places(client: AdminClient, topic: str, timeout: float) -> list[TopicPartition]:
    found = client.list_topics(topic, timeout=timeout).topics[topic]
    if found.error is not None:
        raise Misconfigured(f"topic {topic}: {found.error.str()}; run `orderflow provision`")
    return [TopicPartition(topic, partition) for partition in sorted(found.partitions)]


def _offsets(client: AdminClient, places: list[TopicPartition], which: OffsetSpec) -> dict[int, int]:
    asked = client.list_offsets(dict.fromkeys(places, which), isolation_level=IsolationLevel.READ_UNCOMMITTED)
    try:
        return {place.partition: answer.result().offset for place, answer in asked.items()}
    except KafkaException as error:
        raise PartialOrUnknown(f"Kafka does not say where the topic ends ({error}); run it again") from error


def _position(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise KafkaException(message.error())
    return partition, offset


def _config(settings: Settings) -> dict[str, Any]:
    return {
        **kafka.connection(settings.kafka),
        # The client wants a name; nothing joins and nothing is committed. Covered by the group's own ACL prefix.
        "group.id": f"{settings.kafka.source_topic}.audit.verify",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": 65_536,
    }
