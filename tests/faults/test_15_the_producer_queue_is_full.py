"""The queue is full while the broker is away: bounded memory, no crash, no loss."""

import time
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers.relay import WINDOW_BATCHES, Relay

ROWS, QUEUE, BATCH = 300, 7, 20


def test_rows_wait_for_room_and_all_are_published(
    shop: Settings, shop_pool: ConnectionPool[Connection], published: Callable[[], list[Message]]
) -> None:
    keys = {str(uuid4()).encode() for _ in range(ROWS)}
    with shop_pool.connection() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
            "VALUES (gen_random_uuid(), %s, 1, %s, %s, 'v', '[]')",
            [(key.decode(), shop.kafka.source_topic, key) for key in keys],
        )
    small = kafka.producer_config(shop.kafka) | {"queue.buffering.max.messages": QUEUE}
    with database.connect(shop.database, "api", autocommit=True) as own:
        away: Publisher[int] = Publisher(small | {"bootstrap.servers": "127.0.0.1:1"})
        relay = Relay(own, away, Metrics(), batch_rows=BATCH, poll_seconds=0.05)
        for _ in range(100):
            relay.turn()
            assert len(away) <= QUEUE
            assert relay._held <= WINDOW_BATCHES * BATCH
        assert len(away) == QUEUE
        relay.abandon()
    with database.connect(shop.database, "api", autocommit=True) as own:
        relay = Relay(own, Publisher(small), Metrics(), batch_rows=BATCH, poll_seconds=0.05)
        deadline = time.monotonic() + 60
        while own.execute("SELECT FROM api.outbox WHERE published_at IS NULL LIMIT 1").fetchall():
            assert time.monotonic() < deadline, "it did not happen in time"
            relay.turn()
    messages = published()
    assert len(messages) == ROWS
    assert {message.key() for message in messages} == keys
