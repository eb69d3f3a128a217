"""Orders in PostgreSQL: the order, its event in the outbox and the answer to its caller, in one transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import Connection, errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from orderflow.core import clock
from orderflow.core.errors import Misconfigured
from producers import orders, outbox
from producers.bodies import Cancellation, LineView, OrderView, Payment, PlaceOrder
from producers.idempotency import Answer, IdempotencyKey
from producers.ids import new_id
from producers.orders import Fact, Order, Status
from schemas.events import Event, OrderLine

_INSERT = """
INSERT INTO api.orders
    (order_id, owner, customer_id, currency, lines, total, channel, status, version, created_at, updated_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

_UPDATE = "UPDATE api.orders SET status = %s, version = %s, updated_at = %s WHERE order_id = %s"

_SELECT = """
SELECT order_id, owner, customer_id, currency, lines, total, channel, status, version, updated_at
FROM api.orders WHERE order_id = %s AND owner = %s
"""


class OrderUnknown(Exception):
    """Raised when there is no such order, or it is somebody else's: a caller cannot tell the two apart."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, under which Idempotency-Key, and the trace that the request belongs to."""

    owner: str
    key: IdempotencyKey | None = None
    traceparent: str | None = None


class Store:
    """The orders of all callers. Safe to share between threads; each call is one transaction.

    Calls raise `psycopg.OperationalError` while the database is away.
    """

    def __init__(self, pool: ConnectionPool[Connection], topic: str) -> None:
        self._pool = pool
        self._topic = topic

    def place(self, caller: Caller, body: PlaceOrder) -> Answer:
        """Store a new order. Raises `orders.WrongAmount`, `idempotency.InProgress` and `idempotency.Reused`."""

        def make(connection: Connection) -> tuple[Order, Event]:
            order, event = orders.place(
                fact=_fact(),
                order_id=new_id(),
                owner=caller.owner,
                customer_id=body.customer_id,
                currency=body.currency,
                lines=[OrderLine(sku=x.sku, quantity=x.quantity, unit_price=x.unit_price) for x in body.lines],
                channel=body.channel,
            )
            _insert(connection, order)
            return order, event

        return self._change(caller, make)

    def pay(self, caller: Caller, order_id: UUID, body: Payment) -> Answer:
        """Pay an order. Raises `OrderUnknown`, `orders.NotInState`, and as `place` does."""

        def make(connection: Connection) -> tuple[Order, Event]:
            order = _locked(connection, order_id, caller.owner)
            paid, event = orders.pay(
                order, fact=_fact(), payment_id=body.payment_id, amount=body.amount, method=body.method
            )
            _update(connection, paid)
            return paid, event

        return self._change(caller, make)

    def cancel(self, caller: Caller, order_id: UUID, body: Cancellation) -> Answer:
        """Cancel an order. Raises as `pay` does."""

        def make(connection: Connection) -> tuple[Order, Event]:
            order = _locked(connection, order_id, caller.owner)
            cancelled, event = orders.cancel(order, fact=_fact(), reason=body.reason)
            _update(connection, cancelled)
            return cancelled, event

        return self._change(caller, make)

    def get(self, owner: str, order_id: UUID) -> bytes:
        """Return an order as JSON. Raises `OrderUnknown`."""
        with self._pool.connection() as connection:
            return _view(_found(connection, _SELECT, order_id, owner))

    def ping(self) -> None:
        """Ask the database for an answer."""
        with self._pool.connection() as connection:
            connection.execute("SELECT 1")

    def _change(self, caller: Caller, make: Callable[[Connection], tuple[Order, Event]]) -> Answer:
        with self._pool.connection() as connection:
            if caller.key is not None and (former := caller.key.former_answer(connection)):
                return former
            order, event = make(connection)
            outbox.add(connection, event, topic=self._topic, now=event.occurred_at, traceparent=caller.traceparent)
            answer = Answer(_view(order), f"/v1/orders/{order.order_id}")
            if caller.key is not None:
                caller.key.keep(connection, answer)
            outbox.ring(connection)
            return answer


@contextmanager
def tables_exist() -> Iterator[None]:
    """Turn a missing schema, table or right into the sentence that mends it. Raises `Misconfigured`."""
    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.InsufficientPrivilege) as error:
        said = error.diag.message_primary
        message = f"the database is not set up for the order API ({said}): run `orderflow db apply`"
        raise Misconfigured(message) from None


def _fact() -> Fact:
    return Fact(new_id(), clock.utc_now())


def _insert(connection: Connection, order: Order) -> None:
    lines = [{"sku": x.sku, "quantity": x.quantity, "unit_price": f"{x.unit_price:f}"} for x in order.lines]
    connection.execute(
        _INSERT,
        (
            order.order_id,
            order.owner,
            order.customer_id,
            order.currency,
            Jsonb(lines),
            order.total,
            order.channel,
            order.status,
            order.version,
            order.updated_at,
            order.updated_at,
        ),
    )


def _update(connection: Connection, order: Order) -> None:
    connection.execute(_UPDATE, (order.status, order.version, order.updated_at, order.order_id))


def _locked(connection: Connection, order_id: UUID, owner: str) -> Order:
    """Read an order and hold it until the transaction ends: its events get their versions one after the other."""
    return _found(connection, f"{_SELECT} FOR UPDATE", order_id, owner)


def _found(connection: Connection, query: str, order_id: UUID, owner: str) -> Order:
    with connection.cursor(row_factory=dict_row) as cursor:
        row: dict[str, Any] | None = cursor.execute(query, (order_id, owner)).fetchone()
    if row is None:
        message = "there is no such order"
        raise OrderUnknown(message)
    lines = [OrderLine(**{**line, "unit_price": Decimal(line["unit_price"])}) for line in row["lines"]]
    return Order(**{**row, "lines": lines, "status": Status(row["status"])})


def _view(order: Order) -> bytes:
    return (
        OrderView(
            order_id=order.order_id,
            customer_id=order.customer_id,
            status=order.status,
            version=order.version,
            currency=order.currency,
            lines=tuple(LineView(sku=x.sku, quantity=x.quantity, unit_price=x.unit_price) for x in order.lines),
            total=order.total,
            channel=order.channel,
        )
        .model_dump_json()
        .encode()
    )
