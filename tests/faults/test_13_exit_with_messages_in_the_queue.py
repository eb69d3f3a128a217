"""A relay is stopped while records wait in the producer: drained, or unpublished and an exit code that is not 0."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from fastapi.testclient import TestClient
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.kafka import Publisher, Report
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import relay_process
from tests.stacks.interface import Stack

Pool = ConnectionPool[Connection]
ORDER: dict[str, Any] = {
    "customer_id": "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


def unpublished(pool: Pool) -> int:
    with pool.connection() as connection:
        return len(connection.execute("SELECT FROM api.outbox WHERE published_at IS NULL").fetchall())


def has_picked(settings: Settings) -> bool:
    """Whether a relay has read the outbox since its newest row was stored."""
    with database.connect(settings.database) as connection:
        return bool(
            connection.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' "
                "AND query LIKE '%api.outbox AS earlier%' "
                "AND state_change > (SELECT max(created_at) + interval '0.3 s' FROM api.outbox)"
            ).fetchall()
        )


def test_a_stop_in_the_middle_of_the_flow_drains_and_ends_with_code_0(
    http: TestClient,
    shop_pool: Pool,
    start_role: Callable[..., subprocess.Popen[bytes]],
    published: Callable[[], list[Message]],
) -> None:
    relay = start_role("relay", ORDERFLOW_RELAY__BATCH_ROWS="5")
    deadline = time.monotonic() + 30
    placed = 0
    while placed < 40 or unpublished(shop_pool) == placed:
        http.post("/v1/orders", json=ORDER)
        placed += 1
        assert time.monotonic() < deadline, "the relay publishes nothing"
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(20) == 0
    assert len(published()) == placed - unpublished(shop_pool)


def test_reports_that_come_after_the_stop_are_waited_for_and_marked(
    http: TestClient, shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]]
) -> None:
    http.post("/v1/orders", json=ORDER)

    class ReportsAtTheEnd(Publisher[int]):
        def poll(self, timeout: float = 0.0) -> list[Report[int]]:
            return super().poll(timeout) if Stop.__bool__(stop) else []

    class StopOnceSent(Stop):
        def __bool__(self) -> bool:
            if len(publisher) == 1:
                self.set()
            return super().__bool__()

    publisher, stop = ReportsAtTheEnd(kafka.producer_config(shop.kafka)), StopOnceSent()
    relay_process._term(shop, publisher, Metrics(), stop)
    assert len(published()) == 1
    assert unpublished(shop_pool) == 0


def test_what_has_no_report_stays_unpublished_and_the_code_is_not_0(
    http: TestClient, shop: Settings, shop_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.post("/v1/orders", json=ORDER)
    monkeypatch.setattr(relay_process, "DRAIN_SECONDS", 0.5)
    nobody: Publisher[int] = Publisher(kafka.producer_config(shop.kafka) | {"bootstrap.servers": "127.0.0.1:1"})

    class StopOnceSent(Stop):
        def __bool__(self) -> bool:
            return len(nobody) == 1

    with pytest.raises(relay_process.NotDrained, match="1 events") as stopped:
        relay_process._term(shop, nobody, Metrics(), StopOnceSent())
    assert stopped.value.exit_code != 0
    assert unpublished(shop_pool) == 1


def test_a_database_that_goes_during_the_last_marks_is_no_clean_stop(
    http: TestClient, shop: Settings, shop_pool: Pool
) -> None:
    http.post("/v1/orders", json=ORDER)

    class ReportsAfterTheLoss(Publisher[int]):
        database_is_there = True

        def poll(self, timeout: float = 0.0) -> list[Report[int]]:
            return [] if self.database_is_there else super().poll(timeout)

    publisher = ReportsAfterTheLoss(kafka.producer_config(shop.kafka))

    class StopAndLoseTheDatabase(Stop):
        def __bool__(self) -> bool:
            if len(publisher) == 0:
                return super().__bool__()
            with database.connect(shop.database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            publisher.database_is_there = False
            self.set()
            return True

    with pytest.raises(relay_process.NotDrained, match="database went away before 1 events"):
        relay_process._term(shop, publisher, Metrics(), StopAndLoseTheDatabase())
    assert unpublished(shop_pool) == 1


def test_a_stop_while_the_broker_hangs_ends_with_code_1_and_a_sentence(
    http: TestClient,
    stack: Stack,
    shop: Settings,
    shop_pool: Pool,
    start_role: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    relay = start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.1")
    http.post("/v1/orders", json=ORDER)
    deadline = time.monotonic() + 30
    while unpublished(shop_pool):
        assert time.monotonic() < deadline, "the relay publishes nothing"
        time.sleep(0.05)
    broker = stack.kafka.brokers[0]
    broker.pause()
    try:
        http.post("/v1/orders", json=ORDER)
        while not has_picked(shop):
            assert time.monotonic() < deadline, "the relay does not look"
            time.sleep(0.05)
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(30) == 1
    finally:
        broker.resume()
    assert "sends them again" in (tmp_path / "relay.log").read_text()
    assert unpublished(shop_pool) == 1
