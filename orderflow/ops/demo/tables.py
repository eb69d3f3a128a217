"""Reads what the groups left in PostgreSQL and in the mail folder."""

from collections.abc import Callable, Iterable
from uuid import UUID

from psycopg import Connection

from consumers.inventory import stock
from orderflow.ops.demo.facts import Effect, Mail
from orderflow.ops.stack.inbox import Mail as Delivered

_DELIVERIES = "SELECT event_id, state FROM email.deliveries"
_INBOX = "SELECT event_id, outcome FROM inventory.inbox WHERE group_name = 'inventory'"
_ROWS = "SELECT event_id FROM audit.rows"
_ORDER = "SELECT state, short_skus FROM inventory.orders WHERE order_id = %s"
_STATES = {"sent": "applied", "skipped": "skipped", "sending": "begun"}


def _email(connection: Connection) -> list[Effect]:
    return [Effect(event_id, _STATES[state]) for event_id, state in connection.execute(_DELIVERIES)]


def _inventory(connection: Connection) -> list[Effect]:
    return [Effect(event_id, outcome) for event_id, outcome in connection.execute(_INBOX)]


def _audit(connection: Connection) -> list[Effect]:
    return [Effect(event_id, "applied") for (event_id,) in connection.execute(_ROWS)]


EFFECTS: dict[str, Callable[[Connection], list[Effect]]] = {
    "email": _email,
    "inventory": _inventory,
    "audit": _audit,
}
"""The rows that each group keeps of events."""


def reserved(connection: Connection) -> dict[str, int]:
    """Return pieces reserved, by article."""
    return {level.sku: level.reserved for level in stock.levels(connection)}


def stock_state(connection: Connection, order_id: UUID) -> tuple[str, list[str]]:
    """Return an order's state in the stock room, and the articles that were short."""
    row = connection.execute(_ORDER, (order_id,)).fetchone()
    return (row[0], row[1]) if row else ("unknown", [])


def mails(delivered: Iterable[Delivered]) -> list[Mail]:
    """Return the mails of the sink's folder."""
    return [Mail(mail.message_id, mail.recipients) for mail in delivered]
