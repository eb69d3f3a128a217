"""Events and deliveries to call a handler with; every value can be given, the rest is made up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import uuid4

from consumers.runtime.group import Delivery
from orderflow.core import clock
from schemas import codec
from schemas.events import Event, OrderCancelled, OrderCreated, OrderLine, OrderPaid
from schemas.headers import event_headers

_PRICE = Decimal("12.5000")


def order_created(pieces: Mapping[str, int] | None = None, **given: Any) -> OrderCreated:
    """Return a new order of so many pieces by article; `given` replaces any field."""
    lines = tuple(
        OrderLine(sku=sku, quantity=quantity, unit_price=_PRICE) for sku, quantity in (pieces or {"TEA-100": 1}).items()
    )
    fields: dict[str, Any] = {
        "event_id": uuid4(),
        "occurred_at": clock.utc_now(),
        "order_id": uuid4(),
        "order_version": 1,
        "customer_id": uuid4(),
        "currency": "EUR",
        "lines": lines,
        "total": sum((line.unit_price * line.quantity for line in lines), Decimal(0)),
    }
    return OrderCreated(**(fields | given))


def order_paid(order: OrderCreated, **given: Any) -> OrderPaid:
    """Return the payment of an order; version 2 unless given."""
    fields: dict[str, Any] = {
        "event_id": uuid4(),
        "occurred_at": clock.utc_now(),
        "order_id": order.order_id,
        "order_version": 2,
        "payment_id": uuid4(),
        "amount": order.total,
        "currency": order.currency,
        "method": "card",
    }
    return OrderPaid(**(fields | given))


def order_cancelled(order: OrderCreated, **given: Any) -> OrderCancelled:
    """Return the cancellation of an order; version 3 unless given."""
    fields: dict[str, Any] = {
        "event_id": uuid4(),
        "occurred_at": clock.utc_now(),
        "order_id": order.order_id,
        "order_version": 3,
        "reason": "customer_request",
    }
    return OrderCancelled(**(fields | given))


@dataclass(frozen=True, slots=True)
class GivenDelivery:
    """A `Delivery` that no broker made."""

    group: str
    event_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]
    attempt: int
    replay_count: int
    maybe_done: bool
    idempotency_epoch: int


def delivery_of(event: Event, group: str, **given: Any) -> Delivery:
    """Return a first delivery of the event to the group, encoded as a producer does; `given` replaces any field."""
    fields: dict[str, Any] = {
        "group": group,
        "event_id": str(event.event_id),
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": clock.wall_ms(),
        "key": str(event.order_id).encode(),
        "value": codec.encode(event),
        "headers": event_headers(event),
        "attempt": 1,
        "replay_count": 0,
        "maybe_done": False,
        "idempotency_epoch": 0,
    }
    return GivenDelivery(**(fields | given))
