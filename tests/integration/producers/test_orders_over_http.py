"""The order API on a real PostgreSQL: what is stored, what is answered, and what is refused."""

import threading
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core.settings import Settings
from producers import auth
from producers.api import Parts
from schemas import codec
from schemas.events import OrderCancelled, OrderCreated, OrderPaid

Pool = ConnectionPool[Connection]
CUSTOMER = "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def order(**changes: Any) -> dict[str, Any]:
    return {
        "customer_id": CUSTOMER,
        "currency": "EUR",
        "lines": [
            {"sku": "TEA-01", "quantity": 3, "unit_price": "4.9"},
            {"sku": "CUP-02", "quantity": 1, "unit_price": 12.3456},
        ],
        **changes,
    }


def payment(amount: str = "27.0456") -> dict[str, Any]:
    return {"payment_id": str(uuid4()), "amount": amount, "method": "card"}


def rows(pool: Pool, table: str) -> int:
    with pool.connection() as connection:
        found = connection.execute(f"SELECT count(*) FROM api.{table}").fetchone()
        assert found is not None
        return int(found[0])


def test_an_order_is_stored_with_its_total_and_its_encoded_event(
    http: TestClient, shop_pool: Pool, shop_tables: Settings
) -> None:
    answer = http.post("/v1/orders", json=order(channel="web"), headers={"traceparent": TRACE})
    assert answer.status_code == 201
    said = answer.json()
    assert answer.headers["location"] == f"/v1/orders/{said['order_id']}"
    assert (said["status"], said["version"], said["total"], said["channel"]) == ("placed", 1, "27.0456", "web")
    assert UUID(said["order_id"]).version == 7
    with shop_pool.connection() as connection:
        found = connection.execute(
            "SELECT event_id, aggregate_id, aggregate_version, topic, key, value, headers, published_at FROM api.outbox"
        ).fetchone()
    assert found is not None
    event_id, aggregate_id, version, topic, key, value, headers, published_at = found
    event = codec.decode(value)
    assert isinstance(event, OrderCreated)
    assert (event.event_id, event.order_id, event.order_version) == (event_id, aggregate_id, version)
    assert (event.total, event.channel, len(event.lines)) == (Decimal("27.0456"), "web", 2)
    assert event.lines[1].unit_price == Decimal("12.3456")
    assert (str(aggregate_id), version, topic, published_at) == (
        said["order_id"],
        1,
        shop_tables.kafka.source_topic,
        None,
    )
    assert key == said["order_id"].encode()
    assert headers == [
        ["ce_specversion", "1.0"],
        ["ce_id", str(event_id)],
        ["ce_type", "shop.orders.OrderCreated"],
        ["ce_source", "/orderflow/api"],
        ["content-type", "application/avro"],
        ["traceparent", TRACE],
    ]


def test_an_order_is_paid_then_cancelled_and_each_change_is_an_event(http: TestClient, shop_pool: Pool) -> None:
    place = http.post("/v1/orders", json=order()).headers["location"]
    paid = http.post(f"{place}/payment", json=payment())
    assert (paid.status_code, paid.headers["location"], paid.json()["status"]) == (201, place, "paid")
    cancelled = http.post(f"{place}/cancellation", json={"reason": "customer_request"})
    assert (cancelled.status_code, cancelled.json()["status"], cancelled.json()["version"]) == (201, "cancelled", 3)
    assert http.get(place).json() == cancelled.json()
    with shop_pool.connection() as connection:
        values = connection.execute("SELECT value FROM api.outbox ORDER BY aggregate_version").fetchall()
    created, payed, ended = (codec.decode(row[0]) for row in values)
    assert isinstance(created, OrderCreated)
    assert isinstance(payed, OrderPaid)
    assert isinstance(ended, OrderCancelled)
    assert (payed.amount, payed.currency, payed.order_version) == (Decimal("27.0456"), "EUR", 2)
    assert (ended.reason, ended.order_version) == ("customer_request", 3)


@pytest.mark.parametrize("change", ["payment", "cancellation"])
def test_a_state_that_forbids_a_change_is_a_conflict_and_nothing_is_stored(
    http: TestClient, shop_pool: Pool, change: str
) -> None:
    place = http.post("/v1/orders", json=order()).headers["location"]
    assert http.post(f"{place}/cancellation", json={"reason": "duplicate"}).status_code == 201
    body = payment() if change == "payment" else {"reason": "duplicate"}
    answer = http.post(f"{place}/{change}", json=body)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:orderflow:problem:not-in-state")
    assert rows(shop_pool, "outbox") == 2


def test_a_payment_of_another_amount_is_refused(http: TestClient, shop_pool: Pool) -> None:
    place = http.post("/v1/orders", json=order()).headers["location"]
    answer = http.post(f"{place}/payment", json=payment("27.0455"))
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:orderflow:problem:wrong-amount")
    assert rows(shop_pool, "outbox") == 1


def test_an_order_of_somebody_else_is_not_there(http: TestClient, shop_pool: Pool) -> None:
    place = http.post("/v1/orders", json=order()).headers["location"]
    with shop_pool.connection() as connection:
        foreign = {"Authorization": f"Bearer {auth.new_key(connection, 'marketplace')}"}
    assert http.get(place).status_code == 200
    assert http.get(place, headers=foreign).status_code == 404
    assert http.post(f"{place}/payment", json=payment(), headers=foreign).status_code == 404
    assert http.post(f"{place}/cancellation", json={"reason": "duplicate"}, headers=foreign).status_code == 404
    assert rows(shop_pool, "outbox") == 1


def test_an_unknown_order_is_not_found(http: TestClient) -> None:
    for order_id in (str(uuid4()), "no-uuid", CUSTOMER.upper()):
        for answer in (
            http.get(f"/v1/orders/{order_id}"),
            http.post(f"/v1/orders/{order_id}/payment", json=payment()),
            http.post(f"/v1/orders/{order_id}/cancellation", json={"reason": "duplicate"}),
        ):
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_the_same_key_and_body_get_the_first_answer_again(http: TestClient, shop_pool: Pool) -> None:
    headers = {"Idempotency-Key": "basket-4711"}
    first = http.post("/v1/orders", json=order(), headers=headers)
    again = http.post("/v1/orders", json=order(), headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert first.headers["location"] == again.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert rows(shop_pool, "orders") == rows(shop_pool, "outbox") == 1


def test_a_key_with_another_body_or_for_another_call_is_refused(http: TestClient, shop_pool: Pool) -> None:
    headers = {"Idempotency-Key": "basket-4711"}
    place = http.post("/v1/orders", json=order(), headers=headers).headers["location"]
    for answer in (
        http.post("/v1/orders", json=order(currency="CHF"), headers=headers),
        http.post(f"{place}/payment", json=payment(), headers=headers),
    ):
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:orderflow:problem:idempotency-key-reused")
    assert rows(shop_pool, "outbox") == 1


def test_a_key_belongs_to_its_owner(http: TestClient, shop_pool: Pool) -> None:
    with shop_pool.connection() as connection:
        foreign = {"Authorization": f"Bearer {auth.new_key(connection, 'marketplace')}"}
    first = http.post("/v1/orders", json=order(), headers={"Idempotency-Key": "1"})
    other = http.post("/v1/orders", json=order(currency="CHF"), headers={"Idempotency-Key": "1", **foreign})
    assert other.status_code == 201
    assert other.json()["order_id"] != first.json()["order_id"]


def test_a_key_is_forgotten_after_its_time(http: TestClient, shop_pool: Pool) -> None:
    headers = {"Idempotency-Key": "basket-4711"}
    http.post("/v1/orders", json=order(), headers=headers)
    with shop_pool.connection() as connection:
        connection.execute("UPDATE api.idempotency_keys SET created_at = now() - interval '24 hours 1 second'")
    later = http.post("/v1/orders", json=order(currency="CHF"), headers=headers)
    assert (later.status_code, later.headers.get("idempotent-replayed")) == (201, None)
    replayed = http.post("/v1/orders", json=order(currency="CHF"), headers=headers)
    assert replayed.headers["idempotent-replayed"] == "true"


def test_a_key_in_use_is_a_conflict_that_names_a_time_to_come_back(http: TestClient, shop_pool: Pool) -> None:
    with shop_pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('checkout' || chr(31) || 'slow', 0))")
        answer = http.post("/v1/orders", json=order(), headers={"Idempotency-Key": "slow"})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:orderflow:problem:in-progress")
        assert int(answer.headers["retry-after"]) >= 1
    assert http.post("/v1/orders", json=order(), headers={"Idempotency-Key": "slow"}).status_code == 201


def test_of_many_requests_with_one_key_at_the_same_time_one_stores_an_order(http: TestClient, shop_pool: Pool) -> None:
    statuses: list[int] = []

    def send() -> None:
        statuses.append(http.post("/v1/orders", json=order(), headers={"Idempotency-Key": "double-click"}).status_code)

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert rows(shop_pool, "orders") == rows(shop_pool, "outbox") == 1


def test_changes_of_one_order_at_the_same_time_get_versions_one_after_the_other(
    http: TestClient, shop_pool: Pool
) -> None:
    places = [http.post("/v1/orders", json=order()).headers["location"] for _ in range(4)]
    answers: list[int] = []

    def send(path: str, body: dict[str, Any]) -> None:
        answers.append(http.post(path, json=body).status_code)

    changes = [("payment", payment()), ("cancellation", {"reason": "duplicate"})] * 2
    threads = [
        threading.Thread(target=send, args=(f"{place}/{change}", body)) for place in places for change, body in changes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) <= {201, 409}
    with shop_pool.connection() as connection:
        found = connection.execute(
            "SELECT o.version, array_agg(b.aggregate_version ORDER BY b.id) FROM api.orders o "
            "JOIN api.outbox b ON b.aggregate_id = o.order_id GROUP BY o.order_id, o.version"
        ).fetchall()
    assert len(found) == 4
    for version, versions in found:
        assert versions == list(range(1, version + 1))


def test_a_closed_gate_refuses_changes_and_lets_reading_and_customers_through(
    http: TestClient, api_parts: Parts, shop_pool: Pool
) -> None:
    place = http.post("/v1/orders", json=order()).headers["location"]
    api_parts.gate.closed = True
    for answer in (http.post("/v1/orders", json=order()), http.post(f"{place}/payment", json=payment())):
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:orderflow:problem:backlog")
        assert int(answer.headers["retry-after"]) >= 1
    assert http.get(place).status_code == 200
    assert http.get("/readyz").status_code == 200
    assert http.put(f"/v1/customers/{CUSTOMER}", json=ADA).status_code == 204
    assert rows(shop_pool, "outbox") == 1


ADA = {"name": "Ada Example", "email": "ada@shop.example", "locale": "en-GB"}


def test_a_customer_is_written_changed_and_erased(http: TestClient, shop_pool: Pool) -> None:
    def stored() -> Any:
        with shop_pool.connection() as connection:
            return connection.execute("SELECT name, email, locale, erased_at IS NOT NULL FROM api.customers").fetchone()

    assert http.put(f"/v1/customers/{CUSTOMER}", json=ADA).status_code == 204
    assert http.put(f"/v1/customers/{CUSTOMER}", json=ADA | {"locale": "de"}).status_code == 204
    assert stored() == ("Ada Example", "ada@shop.example", "de", False)
    for _ in range(2):
        assert http.delete(f"/v1/customers/{CUSTOMER}").status_code == 204
    assert stored() == (None, None, None, True)
    assert http.delete(f"/v1/customers/{uuid4()}").status_code == 204


def test_a_wrong_customer_is_refused(http: TestClient, shop_pool: Pool) -> None:
    for body in (
        ADA | {"phone": "1"},
        {"name": "Ada"},
        ADA | {"email": "nobody"},
        ADA | {"email": "a@b.example\nbcc: c@d.example"},
        ADA | {"name": "Ada\x00"},
        ADA | {"name": ""},
        ADA | {"locale": "../etc"},
        ADA | {"name": 7},
    ):
        answer = http.put(f"/v1/customers/{CUSTOMER}", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), body
    assert rows(shop_pool, "customers") == 0
