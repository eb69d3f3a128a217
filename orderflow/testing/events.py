"""Realistic events for tests of handlers; every field can be overridden."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from uuid_utils import uuid7

from orderflow.core import clock
from schemas.events import OrderCancelled, OrderCreated, OrderLine, OrderPaid


def new_id() -> UUID:
    """Return a new UUIDv7."""
    return UUID(str(uuid7()))


def order_created(**fields: Any) -> OrderCreated:
    """Return a first event of a new order: two mugs and a plate."""
    lines = fields.pop(
        "lines",
        (
            OrderLine(sku="MUG-BLUE", quantity=2, unit_price=Decimal("12.5000")),
            OrderLine(sku="PLATE-26", quantity=1, unit_price=Decimal("18.0000")),
        ),
    )
    total = sum((line.quantity * line.unit_price for line in lines), start=Decimal("0.0000"))
    defaults: dict[str, Any] = {
        "event_id": new_id(),
        "occurred_at": clock.utc_now(),
        "order_id": new_id(),
        "order_version": 1,
        "customer_id": new_id(),
        "currency": "EUR",
        "lines": lines,
        "total": total,
        "channel": "web",
    }
    return OrderCreated(**{**defaults, **fields})


def order_paid(order: OrderCreated, **fields: Any) -> OrderPaid:
    """Return the payment of an order, as its second event."""
    defaults: dict[str, Any] = {
        "event_id": new_id(),
        "occurred_at": clock.utc_now(),
        "order_id": order.order_id,
        "order_version": 2,
        "payment_id": new_id(),
        "amount": order.total,
        "currency": order.currency,
        "method": "card",
    }
    return OrderPaid(**{**defaults, **fields})


def order_cancelled(order: OrderCreated, **fields: Any) -> OrderCancelled:
    """Return the cancellation of an order, as its third event."""
    defaults: dict[str, Any] = {
        "event_id": new_id(),
        "occurred_at": clock.utc_now(),
        "order_id": order.order_id,
        "order_version": 3,
        "reason": "customer_request",
    }
    return OrderCancelled(**{**defaults, **fields})
