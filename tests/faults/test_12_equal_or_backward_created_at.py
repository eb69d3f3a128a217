"""Equal or backward `created_at`, as after a clock step: the order of an order's events is its versions."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka import Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers.relay import Relay


@pytest.mark.parametrize("step_seconds", [0, -60])
def test_versions_come_in_order(
    shop: Settings,
    shop_pool: ConnectionPool[Connection],
    published: Callable[[], list[Message]],
    step_seconds: int,
) -> None:
    order_id = uuid4()
    with shop_pool.connection() as connection:
        for version in (3, 1, 2):  # nor do the ids tell
            connection.execute(
                "INSERT INTO api.outbox "
                "(event_id, aggregate_id, aggregate_version, topic, key, value, headers, created_at) "
                "VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, '[]', now() + %s * interval '1 second')",
                (
                    order_id,
                    version,
                    shop.kafka.source_topic,
                    str(order_id).encode(),
                    b"%d" % version,
                    version * step_seconds,
                ),
            )
    publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka))
    deadline = time.monotonic() + 30
    with database.connect(shop.database, "api", autocommit=True) as own, shop_pool.connection() as watch:
        relay = Relay(own, publisher, Metrics(), batch_rows=10, poll_seconds=0.05)
        while watch.execute("SELECT FROM api.outbox WHERE published_at IS NULL").fetchall():
            assert time.monotonic() < deadline, "it did not happen in time"
            relay.turn()
        relay.drain(1)
    assert [message.value() for message in published()] == [b"1", b"2", b"3"]
