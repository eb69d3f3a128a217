"""The janitor on a real PostgreSQL: what goes, what never does, and that nobody notices."""

import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from fastapi.testclient import TestClient
from psycopg import Connection, errors
from psycopg_pool import ConnectionPool

from consumers.inventory import stock
from consumers.inventory.group import keep_stock, open_stock
from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.janitor import sweeping
from orderflow.ops.janitor.janitor import sweeps, tidy
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid
from producers.store import Caller, Store

Pool = ConnectionPool[Connection]

ORDER: dict[str, Any] = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}
_ROWS = """
INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers, created_at,
                        published_at, quarantined_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 'orders', '', '', '[]', now() - interval '1 year',
       CASE WHEN kind < 2 THEN now() - make_interval(days => CASE kind WHEN 0 THEN 8 ELSE 6 END) END,
       CASE WHEN kind = 3 THEN now() - interval '300 days' END
FROM (SELECT (random() * 3)::int AS kind FROM generate_series(1, %s)) AS made
"""
_KINDS = """
SELECT count(*) FILTER (WHERE published_at < now() - interval '7 days'),
       count(*) FILTER (WHERE published_at > now() - interval '7 days'),
       count(*) FILTER (WHERE published_at IS NULL AND quarantined_at IS NULL),
       count(*) FILTER (WHERE quarantined_at IS NOT NULL)
FROM api.outbox
"""


@pytest.fixture
def admin(shop_tables: Settings) -> Iterator[psycopg.Connection]:
    """A superuser's connection to the same database."""
    with psycopg.connect(shop_tables.database.dsn.get_secret_value(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def small_steps(shop_tables: Settings) -> Settings:
    return shop_tables.model_copy(update={"janitor": shop_tables.janitor.model_copy(update={"batch_rows": 50})})


def kinds(admin: psycopg.Connection) -> tuple[int, ...]:
    row = admin.execute(_KINDS).fetchone()
    assert row is not None
    return tuple(row)


def deleted(swept: list[Any]) -> dict[str, int]:
    return {one.table: one.deleted for one in swept}


def test_only_what_kafka_has_had_for_days_goes(small_steps: Settings, admin: psycopg.Connection) -> None:
    admin.execute(_ROWS, (2_000,))
    old, recent, waiting, quarantined = kinds(admin)
    assert min(old, recent, waiting, quarantined) > 100

    counted = tidy(small_steps, dry_run=True)
    assert kinds(admin) == (old, recent, waiting, quarantined)
    assert [(one.old, one.deleted) for one in counted if one.table == "api.outbox"] == [(old, 0)]

    assert deleted(tidy(small_steps))["api.outbox"] == old
    assert kinds(admin) == (0, recent, waiting, quarantined)
    assert deleted(tidy(small_steps))["api.outbox"] == 0


def test_no_program_can_delete_an_event_that_kafka_does_not_have(admin: psycopg.Connection) -> None:
    admin.execute(_ROWS, (200,))
    before = kinds(admin)

    with pytest.raises(errors.RestrictViolation, match="was never published"):
        admin.execute("DELETE FROM api.outbox")

    assert kinds(admin) == before


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("api", "DELETE FROM api.outbox"),
        ("inventory", "DELETE FROM inventory.inbox"),
        ("janitor", "DELETE FROM api.orders"),
        ("janitor", "DELETE FROM api.customers"),
        ("janitor", "DELETE FROM email.deliveries"),
        ("janitor", "DELETE FROM audit.rows"),
        ("janitor", "DELETE FROM inventory.orders"),
        ("janitor", "UPDATE api.outbox SET published_at = now()"),
        ("janitor", "SELECT email FROM api.customers"),
        ("janitor", "SELECT secret_sha256 FROM api.keys"),
    ],
)
def test_who_may_delete_may_do_nothing_else(shop_tables: Settings, role: str, statement: str) -> None:
    with (
        database.connect(shop_tables.database, role, autocommit=True) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_rows_that_somebody_holds_are_left_for_the_next_run(small_steps: Settings, admin: psycopg.Connection) -> None:
    admin.execute(_ROWS, (1_000,))
    old = kinds(admin)[0]
    held = (
        "SELECT id FROM api.outbox WHERE published_at < now() - interval '7 days' ORDER BY random() LIMIT 20 FOR UPDATE"
    )
    with psycopg.connect(small_steps.database.dsn.get_secret_value()) as another:
        another.execute(held)
        # It would hang here if it waited for them.
        assert deleted(tidy(small_steps))["api.outbox"] == old - 20
        another.rollback()

    assert deleted(tidy(small_steps))["api.outbox"] == 20


def test_two_at_once_share_the_work(small_steps: Settings, admin: psycopg.Connection) -> None:
    admin.execute(_ROWS, (4_000,))
    old, *rest = kinds(admin)

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: deleted(tidy(small_steps))["api.outbox"], range(2)))

    # What one of them held is left when the other passed it at that moment.
    left = kinds(admin)[0]
    assert sum(runs) == old - left
    assert deleted(tidy(small_steps))["api.outbox"] == left
    assert kinds(admin) == (0, *rest)


def test_a_run_that_is_broken_off_has_done_whole_batches(small_steps: Settings, admin: psycopg.Connection) -> None:
    admin.execute(_ROWS, (1_000,))
    old = kinds(admin)[0]

    def stop_after_two(table: str, done: int, _total: int) -> None:
        if table == "api.outbox" and done >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tidy(small_steps, progress=stop_after_two)

    assert kinds(admin)[0] == old - 100


def test_an_idempotency_key_counts_for_its_day_and_then_goes(
    http: TestClient, shop_tables: Settings, admin: psycopg.Connection
) -> None:
    headers = {"Idempotency-Key": "basket-1"}
    first = http.post("/v1/orders", json=ORDER, headers=headers).json()
    age = "UPDATE api.idempotency_keys SET created_at = now() - make_interval(secs => %s)"

    admin.execute(age, (24 * 3600 - 60,))
    assert deleted(tidy(shop_tables))["api.idempotency_keys"] == 0
    again = http.post("/v1/orders", json=ORDER, headers=headers)
    assert (again.headers["Idempotent-Replayed"], again.json()) == ("true", first)

    # A request that began in time and still waits finds it an hour later.
    admin.execute(age, (24.9 * 3600,))
    assert deleted(tidy(shop_tables))["api.idempotency_keys"] == 0
    admin.execute(age, (25.1 * 3600,))
    assert deleted(tidy(shop_tables))["api.idempotency_keys"] == 1
    fresh = http.post("/v1/orders", json=ORDER, headers=headers)
    assert fresh.json()["order_id"] != first["order_id"]


def test_a_key_that_is_renewed_at_that_moment_stays(shop_tables: Settings, admin: psycopg.Connection) -> None:
    admin.execute(
        "INSERT INTO api.idempotency_keys (owner, key, fingerprint, body, location, created_at)"
        " VALUES ('checkout', 'basket-1', '', '', '', now() - interval '2 days')"
    )
    with psycopg.connect(shop_tables.database.dsn.get_secret_value()) as request:
        request.execute("UPDATE api.idempotency_keys SET created_at = now()")
        assert deleted(tidy(shop_tables))["api.idempotency_keys"] == 0
        request.commit()

    assert deleted(tidy(shop_tables))["api.idempotency_keys"] == 0
    assert admin.execute("SELECT count(*) FROM api.idempotency_keys").fetchone() == (1,)


def test_while_orders_flow_nothing_is_missing_in_the_topic(
    shop: Settings,
    shop_pool: Pool,
    start_role: Callable[..., "subprocess.Popen[bytes]"],
    published: Callable[[], list[Message]],
) -> None:
    """The hardest setting: a row goes as soon as it is published."""
    from producers.bodies import PlaceOrder

    orders, done = 600, threading.Event()
    outbox = next(sweep for sweep in sweeps(shop) if sweep.table == "api.outbox")
    at_once = type(outbox)(outbox.table, outbox.key, outbox.condition, timedelta(0))

    def clean() -> int:
        gone = 0
        with database.connect(shop.database, "janitor", autocommit=True) as connection:
            while not done.is_set():
                before = sweeping.cutoff(connection, at_once)
                gone += sum(sweeping.batches(connection, at_once, before, 20))
                time.sleep(0.01)
        return gone

    def place(_: int) -> str:
        answer = store.place(Caller("checkout"), PlaceOrder.model_validate(ORDER))
        return str(json.loads(answer.body)["order_id"])

    store = Store(shop_pool, shop.kafka.source_topic)
    start_role("relay")
    with ThreadPoolExecutor(6) as pool:
        janitors = [pool.submit(clean) for _ in range(2)]
        placed = set(pool.map(place, range(orders)))
        deadline = time.monotonic() + 90
        with shop_pool.connection() as connection:
            connection.autocommit = True
            while connection.execute("SELECT count(*) FROM api.outbox").fetchone() != (0,):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        done.set()
        gone = sum(janitor.result() for janitor in janitors)

    keys = [(message.key() or b"").decode() for message in published()]
    assert len(placed) == orders
    assert set(keys) == placed
    assert len(keys) == gone == orders


def test_stock_does_not_rest_on_the_inbox(shop_tables: Settings, admin: psycopg.Connection) -> None:
    """Whatever order an order's events come in, and however often, with the inbox forgotten after each of them."""
    choice = random.Random(4711)
    ways = 0
    with open_stock(shop_tables) as pool:
        with pool.connection() as connection:
            stock.load(connection, {"TEA": 1_000})
        for cancelled in (False, True):
            for way in itertools.permutations([0, 1, 2] if cancelled else [0, 1]):
                order = order_created({"TEA": 2})
                events = [order, order_paid(order), order_cancelled(order)]
                for number in [*way, *choice.choices(way, k=4)]:
                    event = events[number]
                    keep_stock(event, delivery_of(event, "inventory"), pool)
                    admin.execute("DELETE FROM inventory.inbox")
                state = admin.execute("SELECT state FROM inventory.orders WHERE order_id = %s", (order.order_id,))
                assert state.fetchone() == (("cancelled",) if cancelled else ("reserved",)), way
                ways += not cancelled
    assert admin.execute("SELECT reserved FROM inventory.stock").fetchone() == (2 * ways,)


def test_entries_of_the_inbox_go_after_their_days_whatever_their_epoch(
    small_steps: Settings, admin: psycopg.Connection
) -> None:
    admin.execute(
        "INSERT INTO inventory.inbox (group_name, epoch, event_id, outcome, applied_at)"
        " SELECT 'inventory', number % 3, gen_random_uuid(), 'applied', now() - make_interval(days => 88 + number % 4)"
        " FROM generate_series(1, 400) AS number"
    )

    assert deleted(tidy(small_steps))["inventory.inbox"] == 200
    young = "SELECT count(*), min(applied_at) > now() - interval '90 days' FROM inventory.inbox"
    assert admin.execute(young).fetchone() == (200, True)


def test_the_command_counts_deletes_and_says_what_is_missing(
    shop_tables: Settings, role_environment: dict[str, str], admin: psycopg.Connection
) -> None:
    admin.execute(_ROWS, (100,))
    old = kinds(admin)[0]

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "orderflow", "janitor", "--json", *arguments]
        done = subprocess.run(command, env=role_environment, capture_output=True, text=True, check=True, timeout=100)
        return {row["table"]: (row["old"], row["deleted"]) for row in json.loads(done.stdout)["tables"]}

    assert run("--dry-run")["api.outbox"] == (old, 0)
    assert run()["api.outbox"] == (old, old)

    admin.execute("REVOKE ALL ON inventory.inbox FROM orderflow_janitor")
    with pytest.raises(Misconfigured, match="orderflow db apply"):
        tidy(shop_tables)
