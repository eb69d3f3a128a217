"""The whole source topic, from its first record to where it ended when it was opened; no group, no commit."""

from collections.abc import Iterator
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

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
        kafka.admin(settings.kafka)  # says why, when nobody answers
        self._topic = settings.kafka.source_topic
        self._patience = patience_seconds
        self._consumer = Consumer(_config(settings))
        self._ends: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self.unread = 0
        for partition in self._partitions(settings.kafka.start_timeout_seconds):
            place = TopicPartition(self._topic, partition)
            low, high = self._consumer.get_watermark_offsets(place, settings.kafka.start_timeout_seconds)
            self.unread += low
            self._next[partition], self._ends[partition] = low, high
        self.total = sum(self._ends.values()) - self.unread

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

    def _partitions(self, timeout: float) -> list[int]:
        found = self._consumer.list_topics(self._topic, timeout=timeout).topics[self._topic]
        if found.error is not None:
            self._consumer.close()
            raise Misconfigured(f"topic {self._topic}: {found.error.str()}; run `orderflow provision`")
        return sorted(found.partitions)

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
