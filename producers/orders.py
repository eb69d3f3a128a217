"""What an order may do. No I/O: ids and the time are handed in, the changed order and its event come out.

placed ── pay ──> paid ── cancel ──> cancelled
   └───────────── cancel ───────────────^
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from schemas.events import MONEY_PRECISION, MONEY_SCALE, Event, OrderCancelled, OrderCreated, OrderLine, OrderPaid

_SMALLEST = Decimal(1).scaleb(-MONEY_SCALE)
_LIMIT = Decimal(10) ** (MONEY_PRECISION - MONEY_SCALE)


class OrderRuleError(Exception):
    """Base of what the rules of an order forbid; the message is for the caller."""


class NotInState(OrderRuleError):
    """Raised when the order's state does not allow the change (409)."""


class WrongAmount(OrderRuleError):
    """Raised when a total does not fit decimal(18,4), or a payment is not the order's total (422)."""


class Status(StrEnum):
    """Where an order stands."""

    PLACED = "placed"
    PAID = "paid"
    CANCELLED = "cancelled"


class CancellationReason(StrEnum):
    """Why an order is cancelled: a closed set, since free text could hold personal data."""

    CUSTOMER_REQUEST = "customer_request"
    PAYMENT_FAILED = "payment_failed"
    OUT_OF_STOCK = "out_of_stock"
    FRAUD_SUSPECTED = "fraud_suspected"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Fact:
    """The identity and the time (UTC, aware) of the event that a change makes."""

    event_id: UUID
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Order:
    """An order as stored; `owner` is who placed it, `version` counts its events from 1."""

    order_id: UUID
    owner: str
    customer_id: UUID
    currency: str
    lines: Sequence[OrderLine]
    total: Decimal
    channel: str
    status: Status
    version: int
    updated_at: datetime


def total_of(lines: Sequence[OrderLine]) -> Decimal:
    """Return the sum over the lines with four decimals. Raises `WrongAmount` when it does not fit decimal(18,4)."""
    total = sum((line.quantity * line.unit_price for line in lines), Decimal(0))
    if total >= _LIMIT:
        message = f"the total of the lines must be below {_LIMIT:f}"
        raise WrongAmount(message)
    return total.quantize(_SMALLEST)


def place(
    *,
    fact: Fact,
    order_id: UUID,
    owner: str,
    customer_id: UUID,
    currency: str,
    lines: Sequence[OrderLine],
    channel: str,
) -> tuple[Order, Event]:
    """Make a new order. Raises `WrongAmount`."""
    lines = tuple(line.model_copy(update={"unit_price": line.unit_price.quantize(_SMALLEST)}) for line in lines)
    total = total_of(lines)
    order = Order(order_id, owner, customer_id, currency, lines, total, channel, Status.PLACED, 1, fact.occurred_at)
    return order, OrderCreated(
        event_id=fact.event_id,
        occurred_at=fact.occurred_at,
        order_id=order_id,
        order_version=order.version,
        customer_id=customer_id,
        currency=currency,
        lines=lines,
        total=total,
        channel=channel,
    )


def pay(order: Order, *, fact: Fact, payment_id: UUID, amount: Decimal, method: str) -> tuple[Order, Event]:
    """Pay an order in full. Raises `NotInState` unless it is placed, `WrongAmount` unless `amount` is its total."""
    if order.status is not Status.PLACED:
        message = f"the order is {order.status}; only a placed order can be paid"
        raise NotInState(message)
    if amount != order.total:
        message = f"amount must be the order's total, {order.total:f} {order.currency}"
        raise WrongAmount(message)
    paid = _moved(order, Status.PAID, fact)
    return paid, OrderPaid(
        event_id=fact.event_id,
        occurred_at=fact.occurred_at,
        order_id=order.order_id,
        order_version=paid.version,
        payment_id=payment_id,
        amount=order.total,
        currency=order.currency,
        method=method,
    )


def cancel(order: Order, *, fact: Fact, reason: CancellationReason) -> tuple[Order, Event]:
    """Cancel an order, paid or not. Raises `NotInState` when it is cancelled already."""
    if order.status is Status.CANCELLED:
        message = "the order is cancelled already"
        raise NotInState(message)
    cancelled = _moved(order, Status.CANCELLED, fact)
    return cancelled, OrderCancelled(
        event_id=fact.event_id,
        occurred_at=fact.occurred_at,
        order_id=order.order_id,
        order_version=cancelled.version,
        reason=reason.value,
    )


def _moved(order: Order, status: Status, fact: Fact) -> Order:
    return replace(order, status=status, version=order.version + 1, updated_at=fact.occurred_at)
