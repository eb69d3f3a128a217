"""Orders in PostgreSQL: the order, its event in the outbox and the answer to its caller, in one transaction."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
from producers import idempotency, orders, outbox
from producers.bodies import Cancellation, LineView, OrderView, Payment, PlaceOrder
from producers.idempotency import Answer, IdempotencyKey
from producers.ids import new_id
from producers.orders import Fact, Order, Status
from schemas.events import Event, OrderLine

# Each way is one statement, and without a key or a state to look at one transaction too: a round trip to the
# database costs the API more than the database.
_MADE = """
made AS (
    INSERT INTO api.orders
        (order_id, owner, customer_id, currency, lines, total, channel, status, version, created_at, updated_at)
    SELECT %(order_id)s, %(owner)s, %(customer_id)s, %(currency)s, %(lines)s, %(total)s, %(channel)s, %(status)s,
           %(version)s, %(now)s, %(now)s
"""
_PLACE = f"WITH {_MADE} RETURNING 1) {outbox.INSERT}"
_PLACE_FRESH = f"WITH {idempotency.FRESH}, {_MADE} FROM fresh RETURNING 1) {outbox.INSERT}"
_CHANGE = f"""
WITH made AS (
    UPDATE api.orders SET status = %(status)s, version = %(version)s, updated_at = %(now)s
    WHERE order_id = %(order_id)s RETURNING 1
) {outbox.INSERT}
"""  # noqa: S608 - made of constants

_SELECT = """
SELECT order_id, owner, customer_id, currency, lines, total, channel, status, version, updated_at
FROM api.orders WHERE order_id = %s AND owner = %s
"""


class OrderUnknown(Exception):
    """Raised when there is no such order, or it is somebody else's: a caller cannot tell the two apart."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, under which Idempotency-Key, the trace that the request belongs to, and until when it may wait.

    `deadline` is on `clock.monotonic()`; it bounds the wait for a connection, not the work on it.
    """

    owner: str
    key: IdempotencyKey | None = None
    traceparent: str | None = None
    deadline: float | None = None


class Store:
    """The orders of all callers. Safe to share between threads; each call is one transaction.

    `pool` has connections in autocommit, `ring` is told of each stored event when it is committed. Calls raise
    `psycopg.OperationalError` while the database is away, and when `Caller.deadline` passes before a connection is
    free.
    """

    def __init__(self, pool: ConnectionPool[Connection], topic: str, ring: Callable[[], None] = lambda: None) -> None:
        self._pool = pool
        self._topic = topic
        self._ring = ring

    def place(self, caller: Caller, body: PlaceOrder) -> Answer:
        """Store a new order. Raises `orders.WrongAmount`, `idempotency.InProgress` and `idempotency.Reused`."""
        order, event = orders.place(
            fact=_fact(),
            order_id=new_id(),
            owner=caller.owner,
            customer_id=body.customer_id,
            currency=body.currency,
            lines=[OrderLine(sku=x.sku, quantity=x.quantity, unit_price=x.unit_price) for x in body.lines],
            channel=body.channel,
        )
        answer = _answer(order)
        row = self._row(caller, order, event)
        with self._connection(caller.deadline) as connection:
            if caller.key is None:
                connection.execute(_PLACE, row)
            elif not _placed_fresh(connection, row | caller.key.row(answer)):
                # The key is held, or stands for something: what, takes a look after its lock was taken.
                with connection.transaction():
                    if former := caller.key.former_answer(connection):
                        return former
                    connection.execute(_PLACE, row)
                    caller.key.keep(connection, answer)
        self._ring()
        return answer

    def pay(self, caller: Caller, order_id: UUID, body: Payment) -> Answer:
        """Pay an order. Raises `OrderUnknown`, `orders.NotInState`, and as `place` does."""
        return self._change(
            caller,
            order_id,
            lambda order: orders.pay(
                order, fact=_fact(), payment_id=body.payment_id, amount=body.amount, method=body.method
            ),
        )

    def cancel(self, caller: Caller, order_id: UUID, body: Cancellation) -> Answer:
        """Cancel an order. Raises as `pay` does."""
        return self._change(caller, order_id, lambda order: orders.cancel(order, fact=_fact(), reason=body.reason))

    def get(self, owner: str, order_id: UUID, *, deadline: float | None = None) -> bytes:
        """Return an order as JSON. Raises `OrderUnknown`."""
        with self._connection(deadline) as connection:
            return _view(_found(connection, _SELECT, order_id, owner))

    def ping(self, *, deadline: float | None = None) -> None:
        """Ask the database for an answer."""
        with self._connection(deadline) as connection:
            connection.execute("SELECT 1")

    def _connection(self, deadline: float | None) -> AbstractContextManager[Connection]:
        return self._pool.connection(None if deadline is None else deadline - clock.monotonic())

    def _change(self, caller: Caller, order_id: UUID, change: Callable[[Order], tuple[Order, Event]]) -> Answer:
        with self._connection(caller.deadline) as connection, connection.transaction():
            if caller.key is not None and (former := caller.key.former_answer(connection)):
                return former
            # Held until the transaction ends: an order's events get their versions one after the other.
            order, event = change(_found(connection, f"{_SELECT} FOR UPDATE", order_id, caller.owner))
            connection.execute(_CHANGE, self._row(caller, order, event))
            answer = _answer(order)
            if caller.key is not None:
                caller.key.keep(connection, answer)
        self._ring()
        return answer

    def _row(self, caller: Caller, order: Order, event: Event) -> dict[str, Any]:
        """Return the parameters of a statement that stores an order and its event."""
        lines = [{"sku": x.sku, "quantity": x.quantity, "unit_price": f"{x.unit_price:f}"} for x in order.lines]
        return {
            "owner": order.owner,
            "customer_id": order.customer_id,
            "currency": order.currency,
            "lines": Jsonb(lines),
            "total": order.total,
            "channel": order.channel,
            "status": order.status,
            **outbox.row(event, topic=self._topic, now=event.occurred_at, traceparent=caller.traceparent),
        }


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


def _placed_fresh(connection: Connection, row: dict[str, Any]) -> bool:
    """Store an order under a new key; False when the key is not new. Nothing is stored then."""
    try:
        return connection.execute(_PLACE_FRESH, row).rowcount == 1
    except errors.UniqueViolation as error:
        if error.diag.constraint_name != idempotency.CONSTRAINT:
            raise
        connection.rollback()
        return False


def _answer(order: Order) -> Answer:
    return Answer(_view(order), f"/v1/orders/{order.order_id}")


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
