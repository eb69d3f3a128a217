"""Several relays share rows of one order: first occurrences in the topic are in version order."""

import threading
from collections import defaultdict
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import clock, database, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers.relay import Relay

ORDERS, VERSIONS = 20, 5


def first_occurrences(messages: list[Message]) -> dict[bytes, list[int]]:
    seen: dict[bytes, list[int]] = defaultdict(list)
    for message in messages:
        key, version = message.key() or b"", int(message.value() or b"0")
        if version not in seen[key]:
            seen[key].append(version)
    return seen


def test_relays_without_the_lock_keep_the_order_of_versions(
    shop: Settings, shop_pool: ConnectionPool[Connection], published: Callable[[], list[Message]]
) -> None:
    with shop_pool.connection() as connection:
        for order_id in [uuid4() for _ in range(ORDERS)]:
            for version in range(1, VERSIONS + 1):
                connection.execute(
                    "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
                    "VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, '[]')",
                    (order_id, version, shop.kafka.source_topic, str(order_id).encode(), b"%d" % version),
                )
    failed: list[BaseException] = []

    def relay_all() -> None:
        # Each is a leader that does not know that it was replaced.
        publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka))
        deadline = clock.monotonic() + 60
        with database.connect(shop.database, "api", autocommit=True) as own, shop_pool.connection() as watch:
            relay = Relay(own, publisher, Metrics(), batch_rows=7, poll_seconds=0.05)
            while watch.execute("SELECT FROM api.outbox WHERE published_at IS NULL LIMIT 1").fetchall():
                if clock.monotonic() > deadline:
                    failed.append(TimeoutError())
                    return
                relay.turn()
            relay.drain(1)

    relays = [threading.Thread(target=relay_all) for _ in range(3)]
    for thread in relays:
        thread.start()
    for thread in relays:
        thread.join()
    assert not failed
    seen = first_occurrences(published())
    assert len(seen) == ORDERS
    for versions in seen.values():
        assert versions == list(range(1, VERSIONS + 1))
