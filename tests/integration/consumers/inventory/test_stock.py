"""The inventory group on a real PostgreSQL."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.inventory import stock
from consumers.inventory.group import keep_stock, open_stock
from consumers.inventory.stock import Level
from consumers.runtime.group import Outcome
from orderflow.core.errors import Refused
from orderflow.core.settings import Settings
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid
from retry.errors import Outage, Retry
from schemas.events import Event

Pool = ConnectionPool[Connection]


@pytest.fixture
def pool(provisioned: Settings) -> Iterator[Pool]:
    with open_stock(provisioned) as opened:
        yield opened


def handle(pool: Pool, event: Event, epoch: int = 0) -> Outcome:
    return keep_stock(event, delivery_of(event, "inventory", idempotency_epoch=epoch), pool)


def load(pool: Pool, **on_hand: int) -> None:
    with pool.connection() as connection:
        stock.load(connection, on_hand)


def levels(pool: Pool) -> dict[str, tuple[int, int]]:
    with pool.connection() as connection:
        return {level.sku: (level.on_hand, level.reserved) for level in stock.levels(connection)}


def order_state(admin: psycopg.Connection, event: Event) -> tuple[object, ...] | None:
    return admin.execute(
        "SELECT state, paid, last_version, short_skus FROM inventory.orders WHERE order_id = %s", (event.order_id,)
    ).fetchone()


def assert_books_agree(admin: psycopg.Connection) -> None:
    wrong = admin.execute(
        "SELECT s.sku, s.reserved, coalesce(sum(r.quantity), 0) FROM inventory.stock s"
        " LEFT JOIN inventory.reservations r USING (sku) GROUP BY s.sku"
        " HAVING s.reserved <> coalesce(sum(r.quantity), 0) OR s.reserved > s.on_hand"
    ).fetchall()
    assert wrong == []


def test_an_order_is_reserved_paid_and_given_back(pool: Pool, admin: psycopg.Connection) -> None:
    load(pool, TEA=10, CUP=5)
    order = order_created({"TEA": 3, "CUP": 2})

    assert handle(pool, order) is Outcome.PROCESSED
    assert levels(pool) == {"CUP": (5, 2), "TEA": (10, 3)}
    assert handle(pool, order_paid(order)) is Outcome.PROCESSED
    assert order_state(admin, order) == ("reserved", True, 2, [])
    assert handle(pool, order_cancelled(order)) is Outcome.PROCESSED
    assert levels(pool) == {"CUP": (5, 0), "TEA": (10, 0)}
    assert order_state(admin, order) == ("cancelled", True, 3, [])
    assert_books_agree(admin)


def test_too_little_of_one_article_reserves_nothing_and_is_an_outcome(pool: Pool, admin: psycopg.Connection) -> None:
    load(pool, TEA=10, CUP=1)
    order = order_created({"TEA": 3, "CUP": 2, "NEVER-HEARD-OF": 1})

    assert handle(pool, order) is Outcome.PROCESSED

    assert levels(pool) == {"CUP": (1, 0), "TEA": (10, 0)}
    assert order_state(admin, order) == ("out_of_stock", False, 1, ["CUP", "NEVER-HEARD-OF"])


def test_several_lines_of_one_article_are_reserved_as_one(pool: Pool, admin: psycopg.Connection) -> None:
    load(pool, TEA=5)
    once = order_created({"TEA": 3})
    enough = once.model_copy(update={"lines": (*once.lines, *order_created({"TEA": 2}).lines)})
    too_much = order_created().model_copy(update={"lines": (*once.lines, *once.lines)})

    handle(pool, too_much)
    assert levels(pool) == {"TEA": (5, 0)}
    handle(pool, enough)
    assert levels(pool) == {"TEA": (5, 5)}
    assert_books_agree(admin)


def test_the_inbox_makes_a_second_delivery_a_duplicate_and_remembers_what_was_stale(
    pool: Pool, admin: psycopg.Connection
) -> None:
    load(pool, TEA=5)
    order = order_created({"TEA": 3})
    cancelled = order_cancelled(order)

    assert [handle(pool, event) for event in (cancelled, order)] == [Outcome.PROCESSED, Outcome.STALE]
    assert [handle(pool, event) for event in (cancelled, order)] == [Outcome.DUPLICATE, Outcome.DUPLICATE]
    assert admin.execute("SELECT outcome, count(*) FROM inventory.inbox GROUP BY 1 ORDER BY 1").fetchall() == [
        ("applied", 1),
        ("stale", 1),
    ]


def test_a_new_epoch_is_let_in_and_changes_nothing(pool: Pool) -> None:
    load(pool, TEA=5)
    order = order_created({"TEA": 3})
    handle(pool, order)

    assert handle(pool, order, epoch=1) is Outcome.STALE
    assert levels(pool) == {"TEA": (5, 3)}


def test_every_sequence_of_an_orders_events_ends_in_the_same_stock(pool: Pool, admin: psycopg.Connection) -> None:
    load(pool, TEA=1000)
    for sequence in set(itertools.permutations(["created", "paid", "cancelled", "created"])):
        order = order_created({"TEA": 3})
        events = {"created": order, "paid": order_paid(order), "cancelled": order_cancelled(order)}
        for name in sequence:
            handle(pool, events[name])
        assert levels(pool) == {"TEA": (1000, 0)}, sequence
    for first, second in itertools.permutations(["created", "paid"]):
        order = order_created({"TEA": 3})
        events = {"created": order, "paid": order_paid(order)}
        handle(pool, events[first])
        handle(pool, events[second])
        assert order_state(admin, order) == ("reserved", True, 2, [])
    assert levels(pool) == {"TEA": (1000, 6)}
    assert_books_agree(admin)


def test_the_last_pieces_are_never_sold_twice_and_nobody_deadlocks(pool: Pool, admin: psycopg.Connection) -> None:
    load(pool, A=20, B=20, C=20, D=20)
    chance = random.Random(7)
    orders = []
    for _ in range(120):
        skus = chance.sample("ABCD", chance.randint(1, 4))
        orders.append(order_created({sku: chance.randint(1, 3) for sku in skus}))
    events: list[Event] = [*orders, *(order_cancelled(order) for order in orders[::3])]
    chance.shuffle(events)

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda event: handle(pool, event), events))

    assert set(outcomes) <= {Outcome.PROCESSED, Outcome.STALE}
    assert_books_agree(admin)
    states: dict[str, int] = dict(admin.execute("SELECT state, count(*) FROM inventory.orders GROUP BY 1").fetchall())
    assert states["cancelled"] == 40
    assert states["reserved"] > 0
    assert states["out_of_stock"] > 0
    assert admin.execute(
        "SELECT count(*) FROM inventory.reservations JOIN inventory.orders USING (order_id) WHERE state <> 'reserved'"
    ).fetchone() == (0,)


def test_one_event_in_eight_threads_is_applied_once(pool: Pool) -> None:
    load(pool, TEA=100)
    order = order_created({"TEA": 3})

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda _: handle(pool, order), range(8)))

    assert sorted(outcomes) == [Outcome.DUPLICATE] * 7 + [Outcome.PROCESSED]
    assert levels(pool) == {"TEA": (100, 3)}


def test_a_serialization_failure_is_a_retry_and_leaves_nothing(pool: Pool, provisioned: Settings) -> None:
    load(pool, TEA=5)
    order = order_created({"TEA": 1})
    dsn = provisioned.database.dsn.get_secret_value()

    class Stubborn:
        """Reads before somebody else writes, in a transaction that does not accept it."""

        def connection(self) -> Connection:
            connection = psycopg.connect(dsn)
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT * FROM inventory.stock")
            load(pool, TEA=6)
            return connection

    with pytest.raises(Retry, match="SerializationFailure"):
        keep_stock(order, delivery_of(order, "inventory"), Stubborn())  # type: ignore[arg-type]

    assert handle(pool, order) is Outcome.PROCESSED
    assert levels(pool) == {"TEA": (6, 1)}


def once_it_is_back(work: Callable[[], Outcome]) -> Outcome:
    """Try as the worker does: held while it is an outage; the pool asks the server again with a back-off."""
    until = time.monotonic() + 30
    while True:
        try:
            return work()
        except Outage:
            assert time.monotonic() < until, "the pool did not find the server again"


def test_a_database_that_lets_nobody_in_is_an_outage_and_heals(
    pool: Pool, provisioned: Settings, admin: psycopg.Connection
) -> None:
    load(pool, TEA=5)
    name = admin.info.dbname
    server = provisioned.database.dsn.get_secret_value().rsplit("/", 1)[0] + "/postgres"
    order = order_created({"TEA": 1})

    with psycopg.connect(server, autocommit=True) as superuser:
        superuser.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        superuser.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name <> ''",
            (name,),
        )
        with pytest.raises(Outage):
            handle(pool, order)
        superuser.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    assert once_it_is_back(lambda: handle(pool, order)) is Outcome.PROCESSED
    assert levels(pool) == {"TEA": (5, 1)}


def test_a_statement_that_waits_longer_than_a_handler_may_is_an_outage(
    provisioned: Settings, admin: psycopg.Connection
) -> None:
    worker = provisioned.worker.model_copy(update={"deadline_seconds": 0.3})
    order = order_created({"TEA": 1})
    with open_stock(provisioned.model_copy(update={"worker": worker})) as pool:
        load(pool, TEA=5)
        with admin.transaction():
            admin.execute("LOCK TABLE inventory.stock")
            with pytest.raises(Outage, match="QueryCanceled"):
                handle(pool, order)
        assert handle(pool, order) is Outcome.PROCESSED


def test_loading_sets_what_is_on_hand_but_never_below_what_is_reserved(pool: Pool) -> None:
    load(pool, TEA=5, CUP=1)
    handle(pool, order_created({"TEA": 3}))

    load(pool, TEA=3)
    with pool.connection() as connection, pytest.raises(Refused, match=r"TEA \(2 < 3\)"):
        stock.load(connection, {"TEA": 2, "CUP": 9})
    with pool.connection() as connection:
        assert stock.levels(connection) == [Level("CUP", 1, 0), Level("TEA", 3, 3)]
