"""Fault 56: gaps in the versions, and a cancellation that comes before its creation."""

from collections.abc import Iterator

import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.inventory import stock
from consumers.inventory.group import keep_stock, open_stock
from consumers.inventory.stock import Level
from consumers.runtime.group import Outcome
from orderflow.core.settings import Settings
from orderflow.ops.provision import database
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid
from schemas.events import Event

Pool = ConnectionPool[Connection]


@pytest.fixture
def pool(settings: Settings) -> Iterator[Pool]:
    database.apply(settings)
    with open_stock(settings) as opened:
        with opened.connection() as connection:
            stock.load(connection, {"TEA-100": 10})
        yield opened


def handle(pool: Pool, event: Event) -> Outcome:
    return keep_stock(event, delivery_of(event, "inventory"), pool)


def level(pool: Pool) -> Level:
    with pool.connection() as connection:
        return stock.levels(connection)[0]


def test_a_cancellation_is_applied_by_a_group_that_never_saw_the_payment(pool: Pool) -> None:
    order = order_created({"TEA-100": 4})
    assert handle(pool, order) is Outcome.PROCESSED
    assert level(pool) == Level("TEA-100", 10, 4)

    assert handle(pool, order_cancelled(order, order_version=3)) is Outcome.PROCESSED

    assert level(pool) == Level("TEA-100", 10, 0)


def test_nothing_stays_reserved_when_the_cancellation_comes_before_the_creation(pool: Pool) -> None:
    order = order_created({"TEA-100": 4})
    assert handle(pool, order_cancelled(order, order_version=2)) is Outcome.PROCESSED

    assert handle(pool, order) is Outcome.STALE

    assert level(pool) == Level("TEA-100", 10, 0)


def test_a_payment_that_overtakes_the_creation_does_not_cost_the_reservation(pool: Pool) -> None:
    order = order_created({"TEA-100": 4})
    assert handle(pool, order_paid(order)) is Outcome.PROCESSED

    assert handle(pool, order) is Outcome.PROCESSED

    assert level(pool) == Level("TEA-100", 10, 4)
