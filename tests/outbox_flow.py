"""Rows that flow into an outbox, and what must stand in the topic in the end, whatever happened to the relays."""

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast
from uuid import UUID, uuid4

from confluent_kafka import Consumer, TopicPartition
from psycopg import Connection
from psycopg.types.json import Jsonb

from orderflow.core import database
from orderflow.core.settings import Settings

Record = tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]

_INSERT = """
INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class OutboxFlow:
    """Writes events of orders into the outbox of a shop, and compares it with the shop's topic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def add(self, orders: int, versions: int = 1, *, value_bytes: int = 100) -> None:
        """Add new orders with so many events each, version by version."""
        there = {uuid4(): 0 for _ in range(orders)}
        with self._connect() as connection:
            for _ in range(versions):
                self._write(connection, there, list(there), value_bytes)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Write on and on from a thread: new orders, and next events of those that are there."""
        ended = threading.Event()
        failed: list[BaseException] = []

        def write() -> None:
            there: dict[UUID, int] = {}
            try:
                with self._connect() as connection:
                    while not ended.wait(0.02):
                        self._write(connection, there, [uuid4(), uuid4(), *list(there)[-20::4]])
            except BaseException as error:  # noqa: BLE001 - told below, in the test's own thread
                failed.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert not failed, failed

    def unpublished(self) -> int:
        """Return how many rows are not marked."""
        return self._count("published_at IS NULL")

    def published(self) -> int:
        """Return how many rows are marked."""
        return self._count("published_at IS NOT NULL")

    def wait_for_more(self, rows: int = 50) -> None:
        """Wait until so many more rows are marked."""
        goal = self.published() + rows
        wait_until(lambda: self.published() >= goal)

    def leader(self) -> int | None:
        """Return the process id of the session that holds the relays' lock."""
        with self._connect() as connection:
            found = connection.execute(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 673373569 "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
        assert len(found) <= 1
        return int(found[0][0]) if found else None

    def wait_for_a_leader_other_than(self, before: int | None) -> None:
        """Wait until another session holds the relays' lock."""
        wait_until(lambda: self.leader() not in (None, before))

    def depose(self) -> None:
        """End the session that holds the relays' lock."""
        with self._connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (self.leader(),))

    def check(self) -> int:
        """Compare the outbox with the topic; return how many records stand there again.

        Each row must be marked and stand in the topic as it was stored, nothing else may, and the first occurrences of
        an order's events must be in version order.
        """
        with self._connect() as connection:
            rows = connection.execute(
                "SELECT key, value, headers, aggregate_version, published_at FROM api.outbox"
            ).fetchall()
        assert all(row[4] for row in rows), "rows are not marked"
        stored: dict[Record, int] = {
            (key, value, tuple((name, text.encode()) for name, text in headers)): version
            for key, value, headers, version, _ in rows
        }
        assert len(stored) == len(rows)
        records = self._read()
        found = set(records)
        assert not stored.keys() - found, f"{len(stored.keys() - found)} of {len(stored)} events are missing"
        assert not found - stored.keys(), "something else stands in the topic"
        seen: dict[bytes, list[int]] = defaultdict(list)
        for record in dict.fromkeys(records):
            seen[record[0]].append(stored[record])
        assert all(versions == sorted(versions) for versions in seen.values())
        return len(records) - len(found)

    def _write(self, connection: Connection, there: dict[UUID, int], ids: list[UUID], value_bytes: int = 100) -> None:
        """Write the next event of each order; `there` has the version that each order has already."""
        rows = []
        for order_id in ids:
            version = there[order_id] = there.get(order_id, 0) + 1
            event_id = uuid4()
            headers = Jsonb([("ce_id", str(event_id)), ("name", "Käse"), ("name", "")])
            key, value = str(order_id).encode(), secrets.token_bytes(value_bytes)
            rows.append((event_id, order_id, version, self._settings.kafka.source_topic, key, value, headers))
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(_INSERT, rows)

    def _read(self) -> list[Record]:
        """Return the whole topic, each partition in its order."""
        topic = self._settings.kafka.source_topic
        consumer = Consumer(
            {"bootstrap.servers": self._settings.kafka.bootstrap_servers, "group.id": "tests-read-without-a-group"}
        )
        records: list[Record] = []
        try:
            for number in range(self._settings.kafka.partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
                consumer.assign([TopicPartition(topic, number, low)])
                wanted = len(records) + high - low
                deadline = time.monotonic() + 60
                while len(records) < wanted:
                    assert time.monotonic() < deadline, "the topic cannot be read"
                    for message in consumer.consume(wanted - len(records), 1.0):
                        if message.error() is None:
                            headers = cast("list[tuple[str, bytes]]", message.headers() or [])
                            records.append((message.key() or b"", message.value() or b"", tuple(headers)))
        finally:
            consumer.close()
        return records

    def _count(self, condition: str) -> int:
        with self._connect() as connection:
            found = connection.execute(f"SELECT count(*) FROM api.outbox WHERE {condition}").fetchone()
        assert found is not None
        return int(found[0])

    def _connect(self) -> Connection:
        return database.connect(self._settings.database, autocommit=True)
