"""kill -9 of workers, relay and API while orders flow: nothing is missing, stock and audit exact, mails sent."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from subprocess import Popen
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.audit.group import group as audit
from consumers.audit.verify import verify
from consumers.email.group import group as email
from consumers.inventory import stock
from consumers.inventory.group import group as inventory
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.ops.provision import positions, topics
from orderflow.ops.stack.layout import free_ports
from orderflow.testing import GroupHarness, tuned
from tests.stacks.interface import Stack

Start = Callable[..., Popen[bytes]]
GROUPS = [email, inventory, audit]
SKUS = ("TEA-100", "MUG-BLUE", "PLATE-26")
ON_HAND = 1_000_000
CALLERS = 3
ROUNDS = 2
SLOTS = 4
QUICK = {
    "ORDERFLOW_WORKER__LEASE_SECONDS": "2",
    "ORDERFLOW_WORKER__SLOTS": str(SLOTS),
    "ORDERFLOW_WORKER__COMMIT_SECONDS": "0.5",
    "ORDERFLOW_RELAY__POLL_SECONDS": "0.2",
}


@dataclass
class Callers:
    """Callers that order, pay and cancel over HTTP, and note each promise: (order, version)."""

    url: str
    key: str
    customers: list[UUID]
    promised: list[tuple[str, int]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def calling(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._call, args=(number,)) for number in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.done.set()
            for thread in threads:
                thread.join()

    def wait_for_more(self, number: int) -> None:
        goal, deadline = len(self.promised) + number, clock.monotonic() + 60
        while len(self.promised) < goal:
            assert clock.monotonic() < deadline, "no orders flow"
            self.done.wait(0.05)

    def _call(self, number: int) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=5) as client:
            while not self.done.is_set():
                try:
                    self._order(client, number)
                except httpx.TransportError:
                    self.done.wait(0.1)  # the API was killed; it comes back
                number += 1
                self.done.wait(0.02)

    def _order(self, client: httpx.Client, number: int) -> None:
        lines = [
            {"sku": sku, "quantity": 1 + (number + place) % 3, "unit_price": "2.50"}
            for place, sku in enumerate(SKUS[: 1 + number % len(SKUS)])
        ]
        order = {"customer_id": str(self.customers[number % len(self.customers)]), "currency": "EUR", "lines": lines}
        placed = client.post("/v1/orders", json=order)
        if placed.status_code != 201:
            return
        order_id = placed.json()["order_id"]
        self.promised.append((order_id, 1))
        if number % 3 == 1:
            paid = {"payment_id": str(uuid4()), "amount": placed.json()["total"], "method": "card"}
            self._promise(client, order_id, "payment", paid)
        elif number % 3 == 2:
            self._promise(client, order_id, "cancellation", {"reason": "customer_request"})

    def _promise(self, client: httpx.Client, order_id: str, what: str, body: dict[str, Any]) -> None:
        if client.post(f"/v1/orders/{order_id}/{what}", json=body).status_code == 201:
            self.promised.append((order_id, 2))


@pytest.fixture
def whole_shop(shop_tables: Settings) -> Settings:
    """Settings of a shop with topics and positions for every group, and plenty of stock."""
    names = [group.name for group in GROUPS]
    settings = tuned(shop_tables, lease_seconds=2.0)
    topics.apply(settings, names)
    for name in names:
        positions.init(settings, name, "earliest")
    with psycopg.connect(settings.database.dsn.get_secret_value(), autocommit=True) as connection:
        stock.load(connection, dict.fromkeys(SKUS, ON_HAND))
    return settings


def customers(shop_pool: ConnectionPool[Connection]) -> list[UUID]:
    made = [uuid4() for _ in range(5)]
    with shop_pool.connection() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO api.customers (customer_id, email, name, locale) VALUES (%s, %s, 'Kim Lee', 'en')",
            [(customer, f"{customer}@shop.example") for customer in made],
        )
    return made


@pytest.mark.long
@pytest.mark.timeout(400)
def test_nothing_is_missing_and_every_effect_is_exact(
    whole_shop: Settings,
    stack: Stack,
    shop_pool: ConnectionPool[Connection],
    api_key: str,
    start_role: Start,
) -> None:
    (port,) = free_ports(1)
    roles = {name: ("worker", name) for name in ("email", "inventory", "audit")} | {
        "relay": ("relay",),
        "api": ("api",),
    }

    def start(name: str) -> Popen[bytes]:
        return start_role(*roles[name], **QUICK, ORDERFLOW_API__PORT=str(port))

    harnesses = {group.name: GroupHarness(group, whole_shop, workers=0) for group in GROUPS}
    callers = Callers(f"http://127.0.0.1:{port}", api_key, customers(shop_pool))
    running = {name: start(name) for name in roles}
    kills: Counter[str] = Counter()
    with callers.calling():
        callers.wait_for_more(20)
        for _ in range(ROUNDS):
            for name in roles:
                callers.wait_for_more(12)
                if name in harnesses:  # it works, or it would be killed in its sleep
                    _wait_for_progress(harnesses[name])
                assert running[name].poll() is None, f"{name} ended by itself"
                running[name].kill()
                kills[name] += 1
                running[name] = start(name)
        callers.wait_for_more(20)

    with psycopg.connect(whole_shop.database.dsn.get_secret_value(), autocommit=True) as database:
        deadline = clock.monotonic() + 90
        while _one(database, "SELECT count(*) FROM api.outbox WHERE published_at IS NULL"):
            assert clock.monotonic() < deadline, "the relay does not publish the rest"
            threading.Event().wait(0.1)
        for harness in harnesses.values():
            harness.wait_drained(120)
            assert harness.dead_letters() == []
        assert all(process.poll() is None for process in running.values())

        _promises_are_kept(database, callers.promised)
        _audit_is_exact(database, whole_shop)
        _stock_is_exact(database)
        _mails_are_sent(database, stack, kills["email"])


def _wait_for_progress(harness: GroupHarness) -> None:
    before = sum(harness.committed().values())
    harness.wait_until(lambda: sum(harness.committed().values()) > before, f"{harness.group.name} to move", 90)


def _promises_are_kept(database: Connection, promised: list[tuple[str, int]]) -> None:
    stored = set(database.execute("SELECT aggregate_id::text, aggregate_version FROM api.outbox").fetchall())
    assert set(promised) <= stored


def _audit_is_exact(database: Connection, settings: Settings) -> None:
    events = set(database.execute("SELECT event_id FROM api.outbox").fetchall())
    rows = database.execute("SELECT event_id FROM audit.rows").fetchall()
    assert len(rows) == len(events)
    assert set(rows) == events
    report = verify(settings)
    assert (report.missing.count, report.different.count, report.without_record.count, report.unread) == (0, 0, 0, 0)


def _stock_is_exact(database: Connection) -> None:
    """Every order's pieces are reserved once, and given back once where it was cancelled."""
    cancelled = "SELECT aggregate_id FROM api.outbox WHERE headers::text LIKE '%OrderCancelled%'"
    reserved: dict[str, int] = dict(database.execute("SELECT sku, reserved FROM inventory.stock").fetchall())
    wanted: Counter[str] = Counter(dict.fromkeys(SKUS, 0))
    for (lines,) in database.execute(f"SELECT lines FROM api.orders WHERE order_id NOT IN ({cancelled})").fetchall():
        for line in lines:
            wanted[line["sku"]] += line["quantity"]
    assert reserved == dict(wanted)
    assert dict(database.execute("SELECT sku, on_hand FROM inventory.stock").fetchall()) == dict.fromkeys(SKUS, ON_HAND)
    assert _one(database, "SELECT count(*) FROM inventory.inbox") == _one(database, "SELECT count(*) FROM api.outbox")


def _mails_are_sent(database: Connection, stack: Stack, kills: int) -> None:
    """Each new order has its mail; twice only where a kill fell between the server's yes and its record."""
    sent = [
        row[0] for row in database.execute("SELECT message_id FROM email.deliveries WHERE state = 'sent'").fetchall()
    ]
    created = "SELECT count(*) FROM api.outbox WHERE aggregate_version = 1"
    assert len(sent) == _one(database, created)
    ours = set(sent)
    mails = Counter(mail.message_id for mail in stack.mail.messages() if mail.message_id in ours)
    assert set(mails) == ours
    assert sum(mails.values()) - len(mails) <= kills * SLOTS
    assert max(mails.values()) <= 1 + kills


def _one(database: Connection, query: str) -> int:
    (number,) = database.execute(query).fetchone() or (0,)
    return int(number)
