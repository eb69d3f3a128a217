"""Reads topics and positions from Kafka; joins no group and commits nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from orderflow.core import kafka
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics
from orderflow.ops.demo.facts import Change, DeadLetter, Place, Published
from orderflow.ops.provision import cluster
from schemas import codec
from schemas import headers as names
from schemas.errors import DecodeError
from schemas.headers import Headers, header, integer

Offsets = Mapping[tuple[str, int], int]
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read; `timestamp_ms` is the broker's. No headers when a name of one is not UTF-8."""

    place: Place
    timestamp_ms: int
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Positions:
    """Committed offsets by group, read first, and the ends of all topics, read second."""

    committed: Mapping[str, Offsets]
    ends: Offsets


class TopicReader:
    """Keeps every record of some topics, from their first one; use it as a context manager."""

    def __init__(self, settings: Settings, groups: Sequence[GroupTopics]) -> None:
        self.groups = groups
        own = [topic for group in groups for topic in (*group.own, group.dlq)]
        self._topics = [settings.kafka.source_topic, *own]
        self._partitions = range(settings.kafka.partitions)
        self._admin = kafka.admin(settings.kafka)
        self._consumer = Consumer(
            {
                **kafka.connection(settings.kafka),
                # The client wants a name; nothing joins and nothing is committed.
                "group.id": f"{settings.kafka.source_topic}.demo",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
            }
        )
        self._records: dict[str, dict[Place, Record]] = defaultdict(dict)

    def __enter__(self) -> Self:
        """Begin at the first record of every partition."""
        self._consumer.assign(
            [TopicPartition(topic, number, 0) for topic in self._topics for number in self._partitions]
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self._consumer.close()

    def read(self, seconds: float) -> None:
        """Take in what is there, waiting up to `seconds` for the first record. Raises `KafkaException`."""
        wait = seconds
        while messages := self._consumer.consume(_BATCH, wait):
            wait = 0.0
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                place = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)
                self._records[place.topic][place] = Record(
                    place, message.timestamp()[1], message.value(), names.of(message) or []
                )

    def read_to(self, ends: Offsets) -> bool:
        """Take in what is there; return whether that is everything below these ends."""
        self.read(0.1)
        return all(
            Place(topic, partition, end - 1) in self._records[topic] for (topic, partition), end in ends.items() if end
        )

    def of(self, topic: str) -> Iterable[Record]:
        """Return what was read of a topic."""
        return self._records[topic].values()

    def first_appended_ms(self, partition: tuple[str, int], offset: int) -> int | None:
        """Return when the event of a record first stood in the source topic, or None when it was not read yet."""
        record = self._records[partition[0]].get(Place(*partition, offset))
        if record is None:
            return None
        first = integer(record.headers, names.DLQ_TIMESTAMP)
        return record.timestamp_ms if first is None else first

    def positions(self) -> Positions:
        """Ask for committed offsets, then for the ends: a copy is written before its source is committed.

        Raises `OrderflowError` when Kafka does not say.
        """
        asked = {
            group.group_id: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group.group_id)], request_timeout=cluster.ANSWER_SECONDS
            )[group.group_id]
            for group in self.groups
        }
        committed = {
            group_id: {
                (place.topic, place.partition): place.offset
                for place in cluster.answer(future, f"show the offsets of {group_id}").topic_partitions or []
                if place.offset >= 0
            }
            for group_id, future in asked.items()
        }
        ends = self._admin.list_offsets(
            {TopicPartition(topic, n): OffsetSpec.latest() for topic in self._topics for n in self._partitions},
            request_timeout=cluster.ANSWER_SECONDS,
        )
        return Positions(
            committed,
            {
                (place.topic, place.partition): cluster.answer(future, f"show the end of {place.topic}").offset
                for place, future in ends.items()
            },
        )


def published(records: Iterable[Record]) -> tuple[list[Published], list[Place]]:
    """Return the events of the source topic, and the places of records that hold none of ours."""
    events: list[Published] = []
    foreign: list[Place] = []
    for record in records:
        try:
            event = codec.decode(record.value)
            if UUID(header(record.headers, names.CE_ID) or "") != event.event_id:
                foreign.append(record.place)
                continue
        except (DecodeError, ValueError):
            foreign.append(record.place)
            continue
        change = Change(event.type_name, event.order_id, event.order_version)
        events.append(Published(event.event_id, change, record.place))
    return events, foreign


def dead_letters(records: Iterable[Record]) -> list[DeadLetter]:
    """Return the dead letters of a group's topic."""
    return [
        DeadLetter(
            dlq_id=header(record.headers, names.DLQ_ID) or str(record.place),
            event_id=_uuid(header(record.headers, names.CE_ID)),
            origin=Place(
                header(record.headers, names.DLQ_TOPIC) or "",
                _number(record, names.DLQ_PARTITION),
                _number(record, names.DLQ_OFFSET),
            ),
            disposition=header(record.headers, names.DLQ_DISPOSITION) or "",
            attempts=_number(record, names.DLQ_DELIVERY_COUNT),
        )
        for record in records
    ]


def _number(record: Record, name: str) -> int:
    number = integer(record.headers, name)
    return -1 if number is None else number


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
