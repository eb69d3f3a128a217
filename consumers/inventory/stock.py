"""All SQL of the inventory group."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from psycopg import Connection, errors

from consumers.inventory.orders import Action, Decision, Order, State, decide, shortages, wanted
from consumers.runtime.group import Delivery, Outcome
from orderflow.core.errors import Refused
from schemas.events import Event, OrderCreated

RELATIONS = ("inventory.stock", "inventory.orders", "inventory.reservations", "inventory.inbox")


@dataclass(frozen=True, slots=True)
class Level:
    """Pieces of one article: on the shelf, promised to orders, and free to promise."""

    sku: str
    on_hand: int
    reserved: int

    @property
    def available(self) -> int:
        """What a new order may have."""
        return self.on_hand - self.reserved


@dataclass(frozen=True, slots=True)
class Applied:
    """What an event did; `short_skus` names what there was too little of."""

    outcome: Outcome
    state: State | None = None
    short_skus: tuple[str, ...] = ()


def apply(connection: Connection, event: Event, delivery: Delivery) -> Applied:
    """Apply one event exactly once, in one transaction: inbox, order, stock and reservations together.

    Locks are taken in one order by everybody: the event's inbox row, the order, then its articles by
    name. Raises psycopg's errors, after which nothing has happened unless the commit itself was cut.
    """
    with connection.transaction():
        if not _enter(connection, event, delivery):
            return Applied(Outcome.DUPLICATE)
        decision = decide(_locked_order(connection, event.order_id), event)
        order, short = _move_stock(connection, event, decision)
        _store_order(connection, event.order_id, order, short)
        if decision.stale:
            _mark_stale(connection, event, delivery)
    outcome = Outcome.STALE if decision.stale else Outcome.PROCESSED
    return Applied(outcome, order.state, tuple(short))


def _enter(connection: Connection, event: Event, delivery: Delivery) -> bool:
    """Take the event's place in the inbox; False when it was applied before (waits for one being applied)."""
    entered = connection.execute(
        "INSERT INTO inventory.inbox (group_name, epoch, event_id, outcome) VALUES (%s, %s, %s, 'applied')"
        " ON CONFLICT DO NOTHING",
        (delivery.group, delivery.idempotency_epoch, event.event_id),
    )
    return entered.rowcount == 1


def _mark_stale(connection: Connection, event: Event, delivery: Delivery) -> None:
    connection.execute(
        "UPDATE inventory.inbox SET outcome = 'stale' WHERE group_name = %s AND epoch = %s AND event_id = %s",
        (delivery.group, delivery.idempotency_epoch, event.event_id),
    )


def _locked_order(connection: Connection, order_id: UUID) -> Order:
    # An update that changes nothing: it locks and returns the row whether it was there or not.
    row = connection.execute(
        "INSERT INTO inventory.orders (order_id) VALUES (%s)"
        " ON CONFLICT (order_id) DO UPDATE SET order_id = excluded.order_id"
        " RETURNING state, paid, last_version",
        (order_id,),
    ).fetchone()
    assert row is not None  # noqa: S101 - an upsert always returns its row
    return Order(State(row[0]), row[1], row[2])


def _store_order(connection: Connection, order_id: UUID, order: Order, short: list[str]) -> None:
    connection.execute(
        "UPDATE inventory.orders SET state = %s, paid = %s, last_version = %s, changed_at = now(),"
        " short_skus = CASE WHEN %s::text[] = '{}' THEN short_skus ELSE %s::text[] END WHERE order_id = %s",
        (order.state.value, order.paid, order.last_version, short, short, order_id),
    )


def _move_stock(connection: Connection, event: Event, decision: Decision) -> tuple[Order, list[str]]:
    """Reserve all or nothing, or release; return the order as it is now, and what was short."""
    if decision.action is Action.RESERVE and isinstance(event, OrderCreated):
        short = _reserve(connection, event.order_id, wanted(event.lines))
        return (decision.out_of_stock(), short) if short else (decision.order, [])
    if decision.action is Action.RELEASE:
        _release(connection, event.order_id)
    return decision.order, []


def _reserve(connection: Connection, order_id: UUID, pieces: Mapping[str, int]) -> list[str]:
    skus = list(pieces)
    rows = connection.execute(
        "SELECT sku, on_hand - reserved FROM inventory.stock WHERE sku = ANY(%s) ORDER BY sku FOR UPDATE", (skus,)
    ).fetchall()
    short = shortages(pieces, dict(rows))
    if short:
        return short
    # Guarded although the rows are locked: the condition is the promise, the lock only spares a rollback.
    taken = connection.execute(
        "WITH wanted AS (SELECT * FROM unnest(%s::text[], %s::bigint[]) AS w (sku, quantity)),"
        " taken AS (UPDATE inventory.stock s SET reserved = s.reserved + w.quantity FROM wanted w"
        "  WHERE s.sku = w.sku AND s.on_hand - s.reserved >= w.quantity RETURNING s.sku, w.quantity)"
        " INSERT INTO inventory.reservations (order_id, sku, quantity) SELECT %s, sku, quantity FROM taken",
        (skus, list(pieces.values()), order_id),
    )
    if taken.rowcount != len(pieces):
        raise errors.SerializationFailure("the stock changed under its lock")
    return []


def _release(connection: Connection, order_id: UUID) -> None:
    connection.execute(
        "SELECT FROM inventory.stock WHERE sku IN (SELECT sku FROM inventory.reservations WHERE order_id = %s)"
        " ORDER BY sku FOR UPDATE",
        (order_id,),
    )
    connection.execute(
        "WITH freed AS (DELETE FROM inventory.reservations WHERE order_id = %s RETURNING sku, quantity)"
        " UPDATE inventory.stock s SET reserved = s.reserved - f.quantity FROM freed f WHERE s.sku = f.sku",
        (order_id,),
    )


def load(connection: Connection, on_hand: Mapping[str, int]) -> int:
    """Set the pieces on hand of these articles, all or none, and return how many articles were set.

    Raises `Refused` when an article would have fewer pieces than are reserved.
    """
    try:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO inventory.stock (sku, on_hand)"
                " SELECT * FROM unnest(%s::text[], %s::bigint[]) AS given (sku, on_hand) ORDER BY sku"
                " ON CONFLICT (sku) DO UPDATE SET on_hand = excluded.on_hand",
                (list(on_hand), list(on_hand.values())),
            )
            return cursor.rowcount
    except errors.CheckViolation:
        reserved = {level.sku: level.reserved for level in levels(connection)}
        under = sorted(sku for sku, pieces in on_hand.items() if pieces < reserved.get(sku, 0))
        named = ", ".join(f"{sku} ({on_hand[sku]} < {reserved[sku]})" for sku in under[:5])
        raise Refused(
            f"fewer pieces on hand than orders have reserved: {named}; nothing was loaded. "
            f"Give at least the reserved number (`orderflow stock ls`), or cancel orders first"
        ) from None


def levels(connection: Connection) -> list[Level]:
    """Return every article's level, sorted by article."""
    return [
        Level(*row) for row in connection.execute("SELECT sku, on_hand, reserved FROM inventory.stock ORDER BY sku")
    ]
