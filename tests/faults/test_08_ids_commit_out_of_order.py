"""Two transactions take ids 10 and 11, 11 commits first: 10 is still published."""

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
from producers.relay import Relay

INSERT = (
    "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
    "VALUES (gen_random_uuid(), %s, 1, %s, %s, %s, '[]') RETURNING id"
)


def insert(connection: Connection, topic: str, value: bytes) -> int:
    order_id = uuid4()
    found = connection.execute(INSERT, (order_id, topic, str(order_id).encode(), value)).fetchone()
    assert found is not None
    return int(found[0])


def turn_until(relay: Relay, true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        relay.turn()


def test_a_lower_id_that_commits_later_is_still_published(
    shop: Settings, shop_pool: ConnectionPool[Connection], published: Callable[[], list[Message]]
) -> None:
    def unpublished() -> int:
        with shop_pool.connection() as connection:
            found = connection.execute("SELECT count(*) FROM api.outbox WHERE published_at IS NULL").fetchone()
            assert found is not None
            return int(found[0])

    topic = shop.kafka.source_topic
    publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka))
    with database.connect(shop.database, "api", autocommit=True) as own, shop_pool.connection() as slow:
        relay = Relay(own, publisher, Metrics(), batch_rows=10, poll_seconds=0.05)
        lower = insert(slow, topic, b"lower id, commits last")
        with shop_pool.connection() as quick:
            higher = insert(quick, topic, b"higher id, commits first")
        assert lower < higher
        turn_until(relay, lambda: not unpublished())
        assert [message.value() for message in published()] == [b"higher id, commits first"]
        slow.commit()
        assert unpublished() == 1
        turn_until(relay, lambda: not unpublished())
        relay.drain(1)
    assert sorted(message.value() or b"" for message in published()) == [
        b"higher id, commits first",
        b"lower id, commits last",
    ]
