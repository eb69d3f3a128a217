"""The queue is full while the broker is away, in a relay and in a worker: bounded memory, no crash, no loss."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.runtime.group import Delivery
from orderflow.core import database, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, WorkerThread, make_group, order_created, tuned
from producers import relay as relay_module
from producers.relay import WINDOW_BATCHES, Relay
from retry.errors import Retry
from schemas import headers as names
from schemas.events import OrderCreated
from tests.stacks.interface import Stack

Pool = ConnectionPool[Connection]
NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
ROWS, QUEUE, BATCH = 300, 7, 20
VALUE_BYTES = 60_000


def insert(pool: Pool, shop: Settings, rows: int, value_bytes: int) -> set[bytes]:
    keys = {str(uuid4()).encode() for _ in range(rows)}
    with pool.connection() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
            "VALUES (gen_random_uuid(), %s, 1, %s, %s, convert_to(repeat('v', %s), 'UTF8'), '[]')",
            [(key.decode(), shop.kafka.source_topic, key, value_bytes) for key in keys],
        )
    return keys


def publish_all(shop: Settings, pool: Pool, publisher: Publisher[int]) -> None:
    deadline = time.monotonic() + 60
    with database.connect(shop.database, "api", autocommit=True) as own, pool.connection() as watch:
        relay = Relay(own, publisher, Metrics(), batch_rows=BATCH, poll_seconds=0.05)
        while watch.execute("SELECT FROM api.outbox WHERE published_at IS NULL LIMIT 1").fetchall():
            assert time.monotonic() < deadline, "it did not happen in time"
            relay.turn()
        relay.drain(1)


def test_rows_wait_for_room_and_all_are_published(
    shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]]
) -> None:
    keys = insert(shop_pool, shop, ROWS, 1)
    small = kafka.producer_config(shop.kafka) | {"queue.buffering.max.messages": QUEUE}
    with database.connect(shop.database, "api", autocommit=True) as own:
        away: Publisher[int] = Publisher(small | NOBODY)
        relay = Relay(own, away, Metrics(), batch_rows=BATCH, poll_seconds=0.05)
        for _ in range(100):
            relay.turn()
            assert len(away) <= QUEUE
            assert relay._held <= WINDOW_BATCHES * BATCH
        assert len(away) == QUEUE
        relay.abandon()
    publish_all(shop, shop_pool, Publisher(small))
    messages = published()
    assert len(messages) == ROWS
    assert {message.key() for message in messages} == keys


def test_large_values_are_read_by_their_bytes_and_memory_stays_bounded(
    shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_BYTES", 20 * VALUE_BYTES)
    keys = insert(shop_pool, shop, 1_000, VALUE_BYTES)
    config = kafka.producer_config(shop.kafka) | {"queue.buffering.max.kbytes": 40 * VALUE_BYTES // 1024}
    away: Publisher[int] = Publisher(config | NOBODY)
    with database.connect(shop.database, "api", autocommit=True) as own:
        relay = Relay(own, away, Metrics(), batch_rows=10_000, poll_seconds=0.01)
        before = psutil.Process().memory_info().rss
        for _ in range(100):
            relay.turn()
        grown = psutil.Process().memory_info().rss - before
        assert len(away) <= 40
        # 60 MB stand in the outbox. What is held is a few batches of 1.2 MB each, and the producer's copies.
        assert sum(len(row.value) for row in relay._waiting) <= 2 * 20 * VALUE_BYTES
        assert grown < 30_000_000
        relay.abandon()
    publish_all(shop, shop_pool, Publisher(config))
    assert {message.key() for message in published()} == keys


def test_copies_of_a_worker_wait_for_room_within_its_bound_and_none_is_lost(
    few_partitions: Settings, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = 60
    settings = tuned(few_partitions, held_records=held, commit_seconds=0.2)
    usual = kafka.producer_config
    monkeypatch.setattr(kafka, "producer_config", lambda of: usual(of) | {"queue.buffering.max.messages": QUEUE})
    broker_is_away = threading.Event()
    runs: Counter[tuple[str, int]] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        if delivery.attempt == 1:
            broker_is_away.wait(60)
        runs[str(event.event_id), delivery.attempt] += 1
        if delivery.attempt == 1:
            raise Retry("later")

    orders = [order_created() for _ in range(ROWS)]
    with GroupHarness(group, settings, workers=0) as harness:
        harness.publish(*orders)
        worker = harness.start_worker()
        running = f"{group.name} to have as many records as it may"
        try:
            harness.wait_until(lambda: inflight(worker, group.name) == settings.worker.slots, running, 60)
            stack.kafka.pause()
            broker_is_away.set()
            harness.wait_until(lambda: len(runs) > held, "more copies to wait than the queue has room for", 60)
            quiet = -1
            while quiet != len(runs):
                quiet = len(runs)
                threading.Event().wait(0.5)
            assert QUEUE < len(runs) <= 2 * held  # its bound, and what the read that passed it brought
            assert worker.alive
        finally:
            stack.kafka.resume()
        harness.wait_drained(90)
        assert harness.dead_letters() == []
        (tier,) = harness.topics.tiers
        copied = {copy.header(names.CE_ID) for copy in harness.records(tier)}
    assert copied == {str(order.event_id) for order in orders}
    assert runs == {(event, attempt): 1 for event in copied for attempt in (1, 2)}


def inflight(worker: WorkerThread, group: str) -> float | None:
    return worker.metrics.registry.get_sample_value("orderflow_consumer_inflight_records", {"group": group})
