"""Inventory: reserves the articles of an order once, and gives them back when it is cancelled."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.inventory import stock
from consumers.inventory.orders import State
from consumers.runtime import postgres
from consumers.runtime.group import APPLIED, DISCARDED, ConsumerGroup, Delivery, DlqPolicy, Outcome
from orderflow.core import log
from orderflow.core.settings import Settings
from schemas.events import Event, OrderCancelled, OrderCreated, OrderPaid

Pool = ConnectionPool[Connection]

_log = log.get(__name__)


@contextmanager
def open_stock(settings: Settings) -> Iterator[Pool]:
    """Open the stock database. Raises `Misconfigured` when it, or a table, is not there."""
    with postgres.opened(settings, "inventory", *stock.RELATIONS) as pool:
        yield pool


group = ConsumerGroup(
    "inventory",
    owner="team-inventory",
    slo_seconds=30,
    setup=open_stock,
    dlq=DlqPolicy(
        alert="inventory-oncall",
        replay="as soon as the cause is mended: stock that is not reserved may be sold twice",
        delete_when={APPLIED, DISCARDED},
        keep_days=90,
        note="Too little stock is no failure: the order stands as out_of_stock. Replaying is always safe (inbox).",
    ),
)


@group.on(OrderCreated, OrderPaid, OrderCancelled)
def keep_stock(event: Event, delivery: Delivery, pool: Pool) -> Outcome:
    """Apply the event to order and stock. Raises `Retry` on contention, `Outage` without a database."""
    with postgres.failures_named(), pool.connection() as connection:
        applied = stock.apply(connection, event, delivery)
    if applied.short_skus and applied.state is State.OUT_OF_STOCK:
        _log.info("out of stock", order_id=str(event.order_id), skus=list(applied.short_skus))
    return applied.outcome
