from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemas.events import OrderCancelled, OrderCreated, OrderLine, OrderPaid

ENVELOPE: dict[str, Any] = {
    "event_id": UUID("01930000-0000-7000-8000-000000000001"),
    "occurred_at": datetime(2026, 3, 1, 12, 30, 45, 123456, tzinfo=UTC),
    "order_id": UUID("01930000-0000-7000-8000-0000000000ff"),
    "order_version": 1,
}


@pytest.fixture
def created() -> Callable[..., OrderCreated]:
    """Make an OrderCreated; keywords replace its fields."""

    def make(**changes: Any) -> OrderCreated:
        fields: dict[str, Any] = {
            **ENVELOPE,
            "customer_id": UUID("5b0f6c1e-3c1d-4c55-9b1a-0a0a0a0a0a0a"),
            "currency": "EUR",
            "lines": [OrderLine(sku="TEA-GREEN-250", quantity=2, unit_price=Decimal("7.45"))],
            "total": Decimal("14.90"),
            "channel": "web",
        }
        return OrderCreated(**{**fields, **changes})

    return make


@pytest.fixture
def paid() -> OrderPaid:
    return OrderPaid(**ENVELOPE, payment_id=UUID(int=1), amount=Decimal("14.90"), currency="EUR", method="card")


@pytest.fixture
def cancelled() -> OrderCancelled:
    return OrderCancelled(**ENVELOPE, reason="changed_mind")
