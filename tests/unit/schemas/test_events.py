from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.events import EVENTS, MAX_LINES, Event, OrderCreated, OrderLine

LINE = {"sku": "A", "quantity": 1, "unit_price": Decimal(1)}


def test_every_event_is_found_by_the_full_name_of_its_record() -> None:
    assert set(EVENTS) >= {"shop.orders.OrderCancelled", "shop.orders.OrderCreated", "shop.orders.OrderPaid"}
    assert all(issubclass(model, Event) and model.type_name == name for name, model in EVENTS.items())


@pytest.mark.parametrize(
    "total",
    [
        19.99,
        "19.99",
        20,
        Decimal("-0.01"),
        Decimal("0.00001"),
        Decimal(10**14),
        Decimal("NaN"),
        Decimal("Infinity"),
        True,
    ],
)
def test_money_is_an_exact_decimal_of_18_digits_with_4_decimals(
    created: Callable[..., OrderCreated], total: Any
) -> None:
    with pytest.raises(ValidationError, match="total"):
        created(total=total)


@pytest.mark.parametrize(
    "changes",
    [
        {"occurred_at": datetime(2026, 3, 1)},  # noqa: DTZ001 - naive on purpose
        {"occurred_at": 1_772_368_245},
        {"order_version": 0},
        {"order_version": 2**31},
        {"order_version": True},
        {"currency": "eur"},
        {"currency": "EUR\n"},
        {"lines": []},
        {"lines": [{**LINE, "quantity": -1}]},
        {"lines": [{**LINE, "sku": ""}]},
        {"lines": [{**LINE, "email": "a@b.example"}]},
        {"lines": [LINE] * (MAX_LINES + 1)},
        {"email": "a@b.example"},
        {"event_id": "not-a-uuid"},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(created: Callable[..., OrderCreated], changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        created(**changes)


def test_an_event_cannot_be_changed(created: Callable[..., OrderCreated]) -> None:
    event = created()
    with pytest.raises(ValidationError, match="frozen"):
        event.order_version = 2
    assert isinstance(event.lines, tuple)
    assert isinstance(event.lines[0], OrderLine)
