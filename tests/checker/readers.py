"""Reads what a run left behind: Kafka, PostgreSQL, Redis and the mail folder, each by its plain client."""

import mailbox
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path
from typing import Any

import psycopg
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.checker.facts import (
    AuditRow,
    Claim,
    Commit,
    Effect,
    OutboxRow,
    Outcome,
    Partition,
    Place,
    Record,
    Run,
    Stock,
)

OFFSETS_TOPIC = "__consumer_offsets"
READ_SECONDS = 60.0
ASK_SECONDS = 10.0


# To drop a client while a request of it is out ends the process, so none is dropped.
_kept: list[AdminClient] = []


class Unread(Exception):
    """Raised when a topic cannot be read to its end."""


class Cluster:
    """Kafka, asked and read without a group of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": lambda _error: None,
            "reconnect.backoff.max.ms": 500,
        }
        self._admin = AdminClient(self._config)
        self._askers: dict[str, Consumer] = {}
        _kept.append(self._admin)

    def ends(self, topics: Iterable[str]) -> dict[Partition, int]:
        """Return where each partition of these topics ends. Raises `KafkaException`."""
        known = self._admin.list_topics(timeout=ASK_SECONDS).topics
        asked = {
            TopicPartition(topic, number): OffsetSpec.latest()
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        }
        answers = self._admin.list_offsets(asked, request_timeout=ASK_SECONDS)
        return {(place.topic, place.partition): done.result(ASK_SECONDS).offset for place, done in answers.items()}

    def committed(self, group_id: str, topics: Iterable[str]) -> dict[Partition, int]:
        """Return the group's committed offsets on these topics. Raises `KafkaException`.

        Asked by a consumer that never joins: an admin client that asks for offsets while the coordinator is away may
        end the process.
        """
        known = self._admin.list_topics(timeout=ASK_SECONDS).topics
        places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
        if group_id not in self._askers:
            self._askers[group_id] = Consumer(self._config | {"group.id": group_id, "enable.auto.commit": False})
        found = self._askers[group_id].committed(places, timeout=ASK_SECONDS)
        return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}

    def lag(self, group_id: str, topics: Sequence[str]) -> int | None:
        """Return how many records of these topics are not committed; None when the cluster does not say."""
        try:
            # Committed first: what ends later only looks like more.
            committed = self.committed(group_id, topics)
            return sum(end - committed.get(place, 0) for place, end in self.ends(topics).items())
        except (KafkaException, TimeoutError, KeyError):
            # An admin client that saw its broker die may wait for it for ever.
            self._admin = AdminClient(self._config)
            _kept.append(self._admin)
            return None

    def records(self, topics: Iterable[str]) -> dict[str, list[Record]]:
        """Return every committed record of these topics, in the order of offsets. Raises `Unread`."""
        found: dict[str, list[Record]] = {}
        for message in self._read(topics, "read_committed"):
            place = Place(message.topic(), message.partition(), message.offset())
            headers = tuple(message.headers() or ())
            at = message.timestamp()[1] / 1000
            found.setdefault(place.topic, []).append(Record(place, at, message.key(), message.value(), headers))
        for records in found.values():
            records.sort(key=lambda record: record.place)
        return found

    def commits(self, group_id: str) -> list[Commit]:
        """Return the whole history of the group's offsets from the broker's own log, oldest first. Raises `Unread`.

        A partition of that log holds all of a group's commits, in the order in which they were stored.
        """
        found = []
        for message in self._read([OFFSETS_TOPIC], "read_uncommitted"):
            partition = offset_key(message.key(), group_id)
            if partition is not None and message.value():
                # After the version: the offset, in all versions.
                (offset,) = struct.unpack_from(">q", message.value(), 2)
                found.append(((message.offset()), Commit(partition, offset, message.timestamp()[1] / 1000)))
        return [commit for _, commit in sorted(found, key=lambda pair: pair[0])]

    def _read(self, topics: Iterable[str], isolation: str) -> Iterator[Any]:
        ends = {place: end for place, end in self.ends(topics).items() if end}
        consumer = Consumer(
            self._config
            | {
                "group.id": "checker",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in ends])
            until = time.monotonic() + READ_SECONDS
            while open_places := _open(consumer, ends):
                for message in consumer.consume(1_000, 0.2):
                    error = message.error()
                    if error is not None:
                        raise Unread(str(error))
                    if (message.offset() or 0) < ends[message.topic() or "", message.partition() or 0]:
                        yield message
                if time.monotonic() > until:
                    raise Unread(f"{open_places} were not read to their ends within {READ_SECONDS:g} s")
        finally:
            consumer.close()


def _open(consumer: Consumer, ends: dict[Partition, int]) -> list[Partition]:
    positions = consumer.position([TopicPartition(*place) for place in ends])
    return [(p.topic, p.partition) for p in positions if p.offset < ends[p.topic, p.partition]]


def offset_key(key: bytes | None, group_id: str) -> Partition | None:
    """Return the partition that a record of the broker's offsets log is about, if it is a commit of this group."""
    if key is None or len(key) < 4 or struct.unpack_from(">h", key)[0] not in (0, 1):
        return None
    group, rest = _text(key[2:])
    if group != group_id:
        return None
    topic, rest = _text(rest)
    return topic, struct.unpack(">i", rest)[0]


def _text(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    return data[2 : 2 + length].decode(), data[2 + length :]


class Tables:
    """PostgreSQL, read as the shop's owner."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @contextmanager
    def _rows(self, query: str) -> Iterator[Iterator[tuple[Any, ...]]]:
        with psycopg.connect(self._dsn) as connection:
            yield iter(connection.execute(query).fetchall())

    def outbox(self) -> list[OutboxRow]:
        query = (
            "SELECT event_id::text, aggregate_id::text, aggregate_version, key, value, headers,"
            " extract(epoch FROM created_at)::float8, published_at IS NOT NULL, quarantined_at IS NOT NULL"
            " FROM api.outbox"
        )
        with self._rows(query) as rows:
            return [
                OutboxRow(
                    event_id=row[0],
                    order_id=row[1],
                    version=row[2],
                    key=bytes(row[3]),
                    value=bytes(row[4]),
                    headers=tuple((name, text.encode()) for name, text in row[5]),
                    created_at=row[6],
                    published=row[7],
                    quarantined=row[8],
                )
                for row in rows
            ]

    def unpublished(self) -> int:
        with self._rows("SELECT count(*) FROM api.outbox WHERE published_at IS NULL") as rows:
            return int(next(rows)[0])

    def email(self) -> list[Effect]:
        ends = {"sent": Outcome.APPLIED, "skipped": Outcome.SKIPPED, "sending": Outcome.BEGUN}
        query = (
            "SELECT event_id::text, state, extract(epoch FROM coalesce(ended_at, started_at))::float8"
            " FROM email.deliveries"
        )
        with self._rows(query) as rows:
            return [Effect(event_id, ends[state], at) for event_id, state, at in rows]

    def inbox(self, group: str = "inventory") -> list[Effect]:
        query = (
            "SELECT event_id::text, outcome, extract(epoch FROM applied_at)::float8, group_name FROM inventory.inbox"
        )
        with self._rows(query) as rows:
            return [Effect(event_id, Outcome(outcome), at) for event_id, outcome, at, name in rows if name == group]

    def audit(self) -> tuple[list[AuditRow], list[Effect]]:
        query = (
            "SELECT event_id::text, epoch, event_type, order_id::text, order_version, topic, partition, record_offset,"
            " value_sha256, extract(epoch FROM recorded_at)::float8 FROM audit.rows"
        )
        with self._rows(query) as found:
            rows = list(found)
        return (
            [
                AuditRow(
                    event_id=row[0],
                    epoch=row[1],
                    type_name=row[2],
                    order_id=row[3],
                    order_version=row[4],
                    place=Place(row[5], row[6], row[7]),
                    sha256=bytes(row[8]),
                )
                for row in rows
            ],
            [Effect(row[0], Outcome.APPLIED, row[9]) for row in rows],
        )

    def stock(self, scarce: Iterable[str] = ()) -> Stock:
        with self._rows("SELECT sku, on_hand, reserved FROM inventory.stock") as rows:
            levels = list(rows)
        with self._rows("SELECT order_id::text, state FROM inventory.orders") as rows:
            states = {order_id: state for order_id, state in rows}  # noqa: C416 - rows are of any length
        with self._rows("SELECT order_id::text, sku, quantity FROM inventory.reservations") as rows:
            held = {(order_id, sku): int(quantity) for order_id, sku, quantity in rows}
        on_hand = {sku: int(pieces) for sku, pieces, _ in levels}
        return Stock(on_hand, {sku: int(pieces) for sku, _, pieces in levels}, states, held, frozenset(scarce))

    def runs(self, table: str) -> list[Run]:
        """Runs that a group's handlers noted: event_id, attempt, topic, partition, record_offset, at."""
        query = (
            "SELECT event_id::text, attempt, topic, partition, record_offset, extract(epoch FROM at)::float8"
            f" FROM {table}"
        )
        with self._rows(query) as rows:
            return [Run(row[0], row[1], Place(*row[2:5]), row[5]) for row in rows]

    def effects(self, table: str) -> list[Effect]:
        """Effects that a group's handlers noted, one row each: event_id, at."""
        with self._rows(f"SELECT event_id::text, extract(epoch FROM at)::float8 FROM {table}") as rows:
            return [Effect(event_id, Outcome.APPLIED, at) for event_id, at in rows]


def claims(url: str, group: str) -> list[Claim]:
    """Return every claim of a group in Redis, whatever its epoch."""
    found = []
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"idem:{group}:*", count=1_000):
            state: Any = client.hget(key, "st")
            event_id = key.decode().rpartition(":")[2]
            # Asked after the state: gone meanwhile is -2, which is no time to live either.
            ttl: Any = client.pttl(key)
            if state is not None:
                found.append(Claim(event_id, state.decode(), int(ttl)))
    return found


# A key of a Maildir as Python makes it: seconds, microseconds, process, number in that process.
_KEY = re.compile(r"(\d+)\.M(\d+)P\d+Q\d+")
_EVENT = re.compile(r"<?([0-9a-f-]{36})@")


def mails(folder: Path) -> list[Effect]:
    """Return a mail's arrival as an effect of the event that its Message-ID names."""
    if not folder.is_dir():
        return []
    box = mailbox.Maildir(folder, create=False)
    found = []
    for key in box.keys():  # noqa: SIM118 - iterating a Maildir yields messages
        arrived = _KEY.match(key)
        named = _EVENT.match(str(message_from_bytes(box.get_bytes(key))["Message-ID"]))
        event_id = named[1] if named else f"no event's: {key}"
        at = int(arrived[1]) + int(arrived[2]) / 1e6 if arrived else 0.0
        found.append(Effect(event_id, Outcome.APPLIED, at, "mail"))
    return found
