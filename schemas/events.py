"""The events as Python sees them: the newest version of each type, one model per type.

An older record on the topic is resolved to the newest version before a handler sees it, so a
handler knows one shape only. Money is an exact `Decimal`: floats, strings and ints are refused.
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

MONEY_PRECISION = 18
MONEY_SCALE = 4
# The upper end of an Avro `int`; the writer would put a larger number on the topic unchecked.
AVRO_INT_MAX = 2**31 - 1
# The API takes 200. The rest is room to raise that without deploying the consumers first; the end keeps
# a record of hostile bytes from becoming 60,000 rows in one transaction.
MAX_LINES = 1_000

Money = Annotated[
    Decimal,
    Field(strict=True, ge=0, max_digits=MONEY_PRECISION, decimal_places=MONEY_SCALE),
]
Currency = Annotated[str, Field(strict=True, pattern=r"^[A-Z]{3}$")]
Count = Annotated[int, Field(strict=True, ge=1, le=AVRO_INT_MAX)]
Code = Annotated[str, Field(strict=True, min_length=1, max_length=64)]
"""A short word from a set that the API closes (method, reason, channel) or an article's SKU; never free text."""


class _Fact(BaseModel):
    # Revalidating makes `model_validate(event)` a real check of an event that `model_copy` has changed.
    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")


class Event(_Fact):
    """What every event carries; `type_name` is the full name of its Avro record.

    Construction raises pydantic's `ValidationError` for a wrong value, a naive `occurred_at` or an
    unknown field.
    """

    type_name: ClassVar[str]

    event_id: UUID
    occurred_at: Annotated[AwareDatetime, Field(strict=True)]
    order_id: UUID
    order_version: Count


class OrderLine(_Fact):
    """One article of an order; `unit_price` is in the order's currency."""

    sku: Code
    quantity: Count
    unit_price: Money


class OrderCreated(Event):
    """An order was placed. `channel` is "unknown" for records older than that field."""

    type_name = "shop.orders.OrderCreated"

    customer_id: UUID
    currency: Currency
    lines: Annotated[tuple[OrderLine, ...], Field(min_length=1, max_length=MAX_LINES)]
    total: Money
    channel: Code = "unknown"
    delivery_date: Annotated[date | None, Field(strict=True)] = None


class OrderPaid(Event):
    """An order was paid in full."""

    type_name = "shop.orders.OrderPaid"

    payment_id: UUID
    amount: Money
    currency: Currency
    method: Code


class OrderCancelled(Event):
    """An order was cancelled, paid or not."""

    type_name = "shop.orders.OrderCancelled"

    reason: Code


EVENTS: dict[str, type[Event]] = {model.type_name: model for model in (OrderCreated, OrderPaid, OrderCancelled)}
"""Every event type by the full name of its Avro record."""
