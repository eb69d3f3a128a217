"""What the order API takes and gives as JSON: one model per body, strict, and free of personal data.

Money comes as a JSON number or a decimal string and is kept exact: the request's JSON is parsed with
`Decimal`, never with floats. It goes out as a string with four decimals.
"""

import re
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from producers.orders import CancellationReason, Status
from schemas.events import MONEY_PRECISION

MAX_LINES = 200
MAX_QUANTITY = 10_000

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# 14 digits before the point and 4 behind it: decimal(18,4), the events' own type.
_MONEY = re.compile(r"[0-9]{1,14}(\.[0-9]{1,4})?")
_EMAIL = re.compile(r"[^\s@]@[^\s@]")


def canonical_uuid(value: Any) -> UUID:
    """Return the id that this text is; only the canonical lower-case form is one. Raises `ValueError`."""
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        message = "must be a UUID in lower-case text, as in 0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11"
        raise ValueError(message)
    return UUID(value)


def exact_money(value: Any) -> Decimal:
    """Return an exact amount from a JSON number or a decimal string. Raises `ValueError`."""
    text = f"{value:f}" if isinstance(value, Decimal) and value.is_finite() and _short(value) else str(value)
    known = isinstance(value, int | str | Decimal) and not isinstance(value, bool)
    if not known or not _MONEY.fullmatch(text):
        message = "must be an amount from 0 to 99999999999999.9999 with at most 4 decimals"
        raise ValueError(message)
    return Decimal(text)


def whole_number(value: Any) -> Any:
    """Return the integer that a JSON number such as 2.0 is, as JSON Schema reads it; anything else as it came."""
    if isinstance(value, Decimal) and value.is_finite() and _short(value) and value == int(value):
        return int(value)
    return value


def _short(value: Decimal) -> bool:
    """Whether writing the number out costs no memory worth speaking of: 1e999999 is valid JSON."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and abs(exponent) <= MONEY_PRECISION


Id = Annotated[
    UUID,
    BeforeValidator(canonical_uuid),
    WithJsonSchema({"type": "string", "format": "uuid", "pattern": f"^{_UUID.pattern}$"}),
]
Money = Annotated[
    Decimal,
    BeforeValidator(exact_money),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "exclusiveMaximum": 10**14, "multipleOf": 0.0001},
                {"type": "string", "pattern": f"^{_MONEY.pattern}$"},
            ]
        },
        mode="validation",
    ),
]
Sku = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Word = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z][a-z_-]{0,31}$")]
"""A short code. It has no digits, so that no card, account or phone number fits in."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OrderBody(_Body):
    """Base of every body that becomes an event: an email anywhere in it is refused."""

    @model_validator(mode="before")
    @classmethod
    def _without_email(cls, data: Any) -> Any:
        # A stack instead of recursion: the nesting is the caller's choice.
        waiting = [data]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                waiting.extend(item.keys())
                waiting.extend(item.values())
            elif isinstance(item, list):
                waiting.extend(item)
            elif isinstance(item, str) and _EMAIL.search(item):
                raise PydanticCustomError(
                    "personal_data",
                    "an order must not carry an email address: events are kept for ever. Send it with "
                    "PUT /v1/customers/{id} and name the customer here by customer_id only",
                )
        return data


class Line(_Body):
    """One article of an order."""

    sku: Sku
    quantity: Annotated[int, Field(strict=True, ge=1, le=MAX_QUANTITY), BeforeValidator(whole_number)]
    unit_price: Money


class PlaceOrder(OrderBody):
    """Body of `POST /v1/orders`."""

    customer_id: Id
    currency: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{3}$")]
    lines: Annotated[list[Line], Field(min_length=1, max_length=MAX_LINES)]
    channel: Word = "unknown"


class Payment(OrderBody):
    """Body of `POST /v1/orders/{id}/payment`; the amount must be the order's total."""

    payment_id: Id
    amount: Money
    method: Word


class Cancellation(OrderBody):
    """Body of `POST /v1/orders/{id}/cancellation`."""

    reason: CancellationReason


class CustomerEntry(_Body):
    """Body of `PUT /v1/customers/{id}`: what the email group needs to write to a customer."""

    name: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    # No control character: PostgreSQL takes no NUL, and a mail's header takes none of them.
    email: Annotated[
        str,
        StringConstraints(
            strict=True,
            max_length=254,
            pattern=r"^[^\s\x00-\x1f\x7f@<>,;:\"]+@[^\s\x00-\x1f\x7f@<>,;:\"]+$",
        ),
    ]
    locale: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$", max_length=35)
    ]


class LineView(BaseModel):
    """One article as stored."""

    sku: str
    quantity: int
    unit_price: Annotated[Decimal, WithJsonSchema({"type": "string"})]


class OrderView(BaseModel):
    """An order as answered by the API; money as strings with four decimals."""

    order_id: UUID
    customer_id: UUID
    status: Status
    version: int
    currency: str
    lines: tuple[LineView, ...]
    total: Annotated[Decimal, WithJsonSchema({"type": "string"})]
    channel: str
