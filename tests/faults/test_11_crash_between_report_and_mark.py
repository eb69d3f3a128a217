"""A relay dies after the delivery report and before the mark: the event stands twice in the topic, byte-equal."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message
from fastapi.testclient import TestClient
from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import relay as relay_module
from producers.relay import Relay

ORDER: dict[str, Any] = {
    "customer_id": "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


def test_the_event_is_published_again_and_then_marked(
    http: TestClient,
    shop: Settings,
    shop_pool: ConnectionPool[Connection],
    published: Callable[[], list[Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = http.post("/v1/orders", json=ORDER).headers["location"]
    http.post(f"{place}/cancellation", json={"reason": "duplicate"})

    def died(*_: object) -> None:
        raise OperationalError

    def lead(until: Callable[[], bool]) -> None:
        publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka))
        deadline = time.monotonic() + 30
        with database.connect(shop.database, "api", autocommit=True) as own:
            relay = Relay(own, publisher, Metrics(), batch_rows=10, poll_seconds=0.05)
            while not until():
                assert time.monotonic() < deadline, "it did not happen in time"
                relay.turn()
            relay.drain(1)

    with monkeypatch.context() as crash:
        crash.setattr(relay_module, "Marking", died)
        with pytest.raises(OperationalError):
            lead(lambda: False)

    def unpublished() -> bool:
        with shop_pool.connection() as connection:
            return bool(connection.execute("SELECT FROM api.outbox WHERE published_at IS NULL").fetchall())

    assert unpublished()
    lead(lambda: not unpublished())
    with shop_pool.connection() as connection:
        created, cancelled = (
            row[0] for row in connection.execute("SELECT value FROM api.outbox ORDER BY aggregate_version")
        )
    assert [message.value() for message in published()] == [created, created, cancelled]
