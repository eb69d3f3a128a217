"""The relay on a real PostgreSQL and a real Kafka."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Message
from fastapi.testclient import TestClient
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.kafka import Publisher
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import outbox, relay_process
from producers.ids import new_id
from producers.relay import Relay

Pool = ConnectionPool[Connection]
Start = Callable[..., Popen[bytes]]
GOOD: dict[str, Any] = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


def wait_until(true: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def turn_until(relay: Relay, true: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        relay.turn()


def unpublished(pool: Pool) -> int:
    with pool.connection() as connection:
        found = connection.execute("SELECT count(*) FROM api.outbox WHERE published_at IS NULL").fetchone()
        assert found is not None
        return int(found[0])


@contextmanager
def leading(shop: Settings, **changes: Any) -> Iterator[Relay]:
    publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka) | changes)
    with database.connect(shop.database, "api", autocommit=True) as connection:
        relay = Relay(connection, publisher, Metrics(), batch_rows=10, poll_seconds=0.1)
        yield relay
        relay.drain(5)


def insert(pool: Pool, shop: Settings, *, order_id: UUID, version: int, value: bytes = b"v") -> UUID:
    event_id = new_id()
    with pool.connection() as connection:
        connection.execute(
            "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb)",
            (event_id, order_id, version, shop.kafka.source_topic, str(order_id).encode(), value, '[["ce_id", "x"]]'),
        )
    return event_id


def test_what_was_stored_is_published_byte_for_byte(
    http: TestClient, shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]]
) -> None:
    for _ in range(25):
        place = http.post("/v1/orders", json=GOOD).headers["location"]
        http.post(f"{place}/payment", json={"payment_id": str(uuid4()), "amount": 10, "method": "card"})
        http.post(f"{place}/cancellation", json={"reason": "customer_request"})
    with leading(shop) as relay:
        turn_until(relay, lambda: not unpublished(shop_pool))
    with shop_pool.connection() as connection:
        rows = connection.execute("SELECT key, value, headers FROM api.outbox").fetchall()
    stored = {(key, value, tuple((name, text.encode()) for name, text in headers)) for key, value, headers in rows}
    messages = published()
    assert len(messages) == len(stored) == 75
    assert {(m.key(), m.value(), tuple(m.headers() or ())) for m in messages} == stored


def test_versions_of_an_order_follow_each_other_whatever_their_ids(
    shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]]
) -> None:
    order_id = uuid4()
    for version in (3, 1, 2):
        insert(shop_pool, shop, order_id=order_id, version=version, value=f"{version}".encode())
    with leading(shop) as relay:
        turn_until(relay, lambda: not unpublished(shop_pool))
    assert [message.value() for message in published()] == [b"1", b"2", b"3"]


def test_a_new_order_wakes_a_relay_that_sleeps(http: TestClient, shop: Settings, shop_pool: Pool) -> None:
    publisher: Publisher[int] = Publisher(kafka.producer_config(shop.kafka))
    with database.connect(shop.database, "api", autocommit=True) as connection:
        relay = Relay(connection, publisher, Metrics(), batch_rows=10, poll_seconds=60)
        stop = Stop()
        running = threading.Thread(target=relay.run, args=(stop,), daemon=True)
        running.start()
        wait_until(lambda: not relay._hungry)  # it has looked, and found nothing
        http.post("/v1/orders", json=GOOD)
        wait_until(lambda: not unpublished(shop_pool), seconds=20)
        stop.set()
        http.post("/v1/orders", json=GOOD)
        running.join(20)
        assert not running.is_alive()
        relay.drain(5)


@pytest.mark.parametrize("known", ["nothing pending", "all pending"])
def test_whatever_the_planner_believes_a_pick_reads_only_what_is_pending(shop: Settings, known: str) -> None:
    insert_many = (
        "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers, published_at) "
        "SELECT gen_random_uuid(), gen_random_uuid(), 1, 't', 'k', 'v', '[]', %s FROM generate_series(1, 2000)"
    )
    published, pending = (insert_many, ["2026-01-01"]), (insert_many, [None])
    with database.connect(shop.database, autocommit=True) as admin:
        admin.execute(*(published if known == "nothing pending" else pending))
        admin.execute("ANALYZE api.outbox")
        admin.execute("UPDATE api.outbox SET published_at = now()")
        admin.execute(*pending)
    with database.connect(shop.database, "api", autocommit=True) as connection:
        outbox.prepare(connection)
        question = outbox._PICK.replace("SELECT id, topic", "EXPLAIN (ANALYZE) SELECT id, topic", 1)
        for mode in ("force_custom_plan", "force_generic_plan"):
            connection.execute(f"SET plan_cache_mode = {mode}")
            held = {"in_flight": [], "limit": 2000, "limit_bytes": 1_000_000}
            plan = "\n".join(row[0] for row in connection.execute(question, held, prepare=True))
            assert "using outbox_pending on outbox o " in plan
            assert "using outbox_aggregate_id_aggregate_version_key on outbox earlier" in plan
            assert "Sort" not in plan
            assert "Rows Removed by Filter" not in plan


def test_a_row_that_kafka_refuses_is_quarantined_and_only_its_order_waits(
    shop: Settings, shop_pool: Pool, published: Callable[[], list[Message]]
) -> None:
    sick, healthy = uuid4(), uuid4()
    too_large = random.Random(2).randbytes(2_097_152)
    refused = insert(shop_pool, shop, order_id=sick, version=1, value=too_large)
    insert(shop_pool, shop, order_id=sick, version=2)
    insert(shop_pool, shop, order_id=healthy, version=1)
    with leading(shop) as relay:
        turn_until(relay, lambda: unpublished(shop_pool) == 2)
        with shop_pool.connection() as connection:
            found = outbox.unpublished(connection, quarantined_only=True, limit=10)
            assert [row["event_id"] for row in found] == [str(refused)]
            assert found[0]["attempts"] == 1
            assert found[0]["last_error"]
            # What waits behind it closes no gate.
            assert outbox.backlog(connection) == outbox.Backlog(rows=0, oldest_seconds=0.0, quarantined=1)
        for _ in range(20):
            relay.turn()
        assert [message.key() for message in published()] == [str(healthy).encode()]
        with shop_pool.connection() as connection:
            connection.execute("UPDATE api.outbox SET value = 'small' WHERE event_id = %s", (refused,))
            assert outbox.requeue(connection, [refused]) == [str(refused)]
        turn_until(relay, lambda: not unpublished(shop_pool))
    of_sick = [message.value() for message in published() if message.key() == str(sick).encode()]
    assert of_sick == [b"small", b"v"]


def test_a_value_over_the_topics_limit_is_refused_by_the_broker_and_quarantined(
    shop: Settings, shop_pool: Pool
) -> None:
    insert(shop_pool, shop, order_id=uuid4(), version=1, value=random.Random(1).randbytes(1_060_000))
    with leading(shop) as relay:
        turn_until(relay, lambda: _quarantined(shop_pool) == 1)


def _quarantined(pool: Pool) -> int:
    with pool.connection() as connection:
        return outbox.backlog(connection).quarantined


def test_of_two_relays_one_leads_and_the_other_takes_over_when_it_dies(
    http: TestClient, shop_pool: Pool, start_role: Start
) -> None:
    def leaders() -> list[int]:
        with shop_pool.connection() as connection:
            found = connection.execute(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 673373569 "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
        return [row[0] for row in found]

    first = start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.1")
    wait_until(leaders)
    before = leaders()
    start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.1")
    http.post("/v1/orders", json=GOOD)
    wait_until(lambda: not unpublished(shop_pool))
    assert leaders() == before
    first.kill()
    wait_until(lambda: leaders() not in ([], before))
    http.post("/v1/orders", json=GOOD)
    wait_until(lambda: not unpublished(shop_pool))


def test_a_relay_whose_connection_is_cut_leads_again_and_loses_nothing(
    http: TestClient, shop_pool: Pool, start_role: Start, published: Callable[[], list[Message]]
) -> None:
    start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.1")
    sent = set()
    for number in range(40):
        sent.add(http.post("/v1/orders", json=GOOD).json()["order_id"])
        if number % 10 == 5:
            with shop_pool.connection() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 673373569"
                    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
    wait_until(lambda: not unpublished(shop_pool), seconds=60)
    assert {(message.key() or b"").decode() for message in published()} == sent


def test_a_relay_that_is_told_to_stop_ends_with_code_0(http: TestClient, shop_pool: Pool, start_role: Start) -> None:
    relay = start_role("relay")
    http.post("/v1/orders", json=GOOD)
    wait_until(lambda: not unpublished(shop_pool))
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(20) == 0


def test_a_missing_topic_and_a_wrong_partition_count_name_what_mends_them(shop: Settings) -> None:
    relay_process.require_topic(shop)
    other = shop.model_copy(update={"kafka": shop.kafka.model_copy(update={"source_topic": "orders-that-never-were"})})
    with pytest.raises(Misconfigured, match="orderflow topics apply"):
        relay_process.require_topic(other)
    wrong = shop.model_copy(update={"kafka": shop.kafka.model_copy(update={"partitions": 4})})
    with pytest.raises(Misconfigured, match="ORDERFLOW_KAFKA__PARTITIONS"):
        relay_process.require_topic(wrong)
