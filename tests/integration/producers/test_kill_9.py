"""kill -9 of the API and of the relay while orders flow: every 201 is in the topic, exactly as stored."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from subprocess import Popen
from typing import Any, NamedTuple, Self
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.ops.stack.layout import free_ports

Pool = ConnectionPool[Connection]
Start = Callable[..., Popen[bytes]]
Promise = tuple[str, int]
ORDER: dict[str, Any] = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


class Stored(NamedTuple):
    order_id: str
    version: int
    key: bytes
    value: bytes
    headers: list[list[str]]
    unpublished: bool


class Callers:
    """Four callers that order and pay, and note what they were promised by a 201."""

    def __init__(self, base_url: str, key: str) -> None:
        self.promised: list[Promise] = []
        self._client = httpx.Client(base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=5)
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def wait_for_more(self, orders: int) -> None:
        goal, deadline = len(self.promised) + orders, time.monotonic() + 60
        while len(self.promised) < goal:
            assert time.monotonic() < deadline, "no orders flow"
            time.sleep(0.02)

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                self._order_and_pay()
            except httpx.TransportError:
                time.sleep(0.05)  # it was killed; it comes back

    def _order_and_pay(self) -> None:
        placed = self._client.post("/v1/orders", json=ORDER)
        if placed.status_code != 201:
            return
        order_id = placed.json()["order_id"]
        self.promised.append((order_id, 1))
        payment = {"payment_id": str(uuid4()), "amount": "10", "method": "card"}
        if self._client.post(f"/v1/orders/{order_id}/payment", json=payment).status_code == 201:
            self.promised.append((order_id, 2))


def stored(pool: Pool) -> list[Stored]:
    with pool.connection() as connection:
        rows = connection.execute(
            "SELECT aggregate_id::text, aggregate_version, key, value, headers, published_at IS NULL FROM api.outbox"
        ).fetchall()
    return [Stored(*row) for row in rows]


def stored_when_all_is_published(pool: Pool) -> list[Stored]:
    deadline = time.monotonic() + 60
    while any(row.unpublished for row in stored(pool)):
        assert time.monotonic() < deadline, "the relay does not publish the rest"
        time.sleep(0.1)
    return stored(pool)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_nothing_is_missing_and_first_occurrences_are_in_version_order(
    shop_pool: Pool, start_role: Start, api_key: str, published: Callable[[], list[Message]]
) -> None:
    (port,) = free_ports(1)

    def start(verb: str) -> Popen[bytes]:
        return start_role(verb, ORDERFLOW_API__PORT=str(port), ORDERFLOW_RELAY__POLL_SECONDS="0.2")

    with Callers(f"http://127.0.0.1:{port}", api_key) as callers:
        running = {verb: start(verb) for verb in ("api", "relay")}
        for verb in ("relay", "api") * 2:
            callers.wait_for_more(30)
            running[verb].kill()
            running[verb] = start(verb)
        callers.wait_for_more(30)
    by_value = {row.value: row for row in stored_when_all_is_published(shop_pool)}
    assert set(callers.promised) <= {(row.order_id, row.version) for row in by_value.values()}
    first: dict[str, list[int]] = defaultdict(list)
    for message in published():
        row = by_value[message.value() or b""]
        assert message.key() == row.key
        assert message.headers() == [(name, text.encode()) for name, text in row.headers]
        if row.version not in first[row.order_id]:
            first[row.order_id].append(row.version)
    assert sum(map(len, first.values())) == len(by_value)
    for versions in first.values():
        assert versions == list(range(1, len(versions) + 1))
