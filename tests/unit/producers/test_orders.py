from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import orders
from producers.orders import CancellationReason, Fact, NotInState, Order, Status, WrongAmount
from schemas.events import OrderCancelled, OrderCreated, OrderLine, OrderPaid

NOW = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


def fact() -> Fact:
    return Fact(uuid4(), NOW)


def lines(*parts: tuple[int, str]) -> list[OrderLine]:
    return [OrderLine(sku="TEA-01", quantity=quantity, unit_price=Decimal(price)) for quantity, price in parts]


def placed(*parts: tuple[int, str]) -> Order:
    order, _ = orders.place(
        fact=fact(),
        order_id=uuid4(),
        owner="checkout",
        customer_id=UUID(int=7),
        currency="EUR",
        lines=lines(*(parts or ((1, "10"),))),
        channel="web",
    )
    return order


def test_placing_makes_version_1_and_an_event_that_says_the_same() -> None:
    made = fact()
    order, event = orders.place(
        fact=made,
        order_id=UUID(int=1),
        owner="checkout",
        customer_id=UUID(int=7),
        currency="EUR",
        lines=lines((3, "4.9"), (1, "12.3456")),
        channel="web",
    )
    assert (order.status, order.version, order.owner) == (Status.PLACED, 1, "checkout")
    assert isinstance(event, OrderCreated)
    assert (event.event_id, event.occurred_at, event.order_id) == (made.event_id, NOW, UUID(int=1))
    assert event.total == order.total == Decimal("27.0456")
    assert f"{event.lines[0].unit_price:f}" == "4.9000"


@given(
    st.lists(
        st.tuples(st.integers(1, 10_000), st.decimals(0, 1_000_000, places=4, allow_nan=False)),
        min_size=1,
        max_size=200,
    )
)
def test_the_total_is_the_exact_sum_with_four_decimals(parts: list[tuple[int, Decimal]]) -> None:
    total = orders.total_of(lines(*((quantity, str(price)) for quantity, price in parts)))
    assert int(total * 10_000) == sum(quantity * int(price * 10_000) for quantity, price in parts)
    assert total.as_tuple().exponent == -4


def test_a_total_beyond_the_events_decimal_is_refused() -> None:
    assert orders.total_of(lines((1, "99999999999999.9999"))) == Decimal("99999999999999.9999")
    with pytest.raises(WrongAmount):
        orders.total_of(lines((1, "99999999999999.9999"), (1, "0.0001")))


def test_a_placed_order_is_paid_with_its_total_only() -> None:
    order = placed((2, "10.50"))
    payment_id = uuid4()
    paid, event = orders.pay(order, fact=fact(), payment_id=payment_id, amount=Decimal(21), method="card")
    assert (paid.status, paid.version) == (Status.PAID, 2)
    assert isinstance(event, OrderPaid)
    assert (event.amount, event.currency, event.payment_id, event.order_version) == (Decimal(21), "EUR", payment_id, 2)
    for amount in ("20.9999", "21.0001", "0"):
        with pytest.raises(WrongAmount, match=r"21\.0000 EUR"):
            orders.pay(order, fact=fact(), payment_id=payment_id, amount=Decimal(amount), method="card")


@pytest.mark.parametrize("status", [Status.PAID, Status.CANCELLED])
def test_only_a_placed_order_can_be_paid(status: Status) -> None:
    order = replace(placed(), status=status)
    with pytest.raises(NotInState, match=status):
        orders.pay(order, fact=fact(), payment_id=uuid4(), amount=order.total, method="card")


@pytest.mark.parametrize("status", [Status.PLACED, Status.PAID])
def test_a_placed_or_paid_order_can_be_cancelled_once(status: Status) -> None:
    order = replace(placed(), status=status, version=2)
    cancelled, event = orders.cancel(order, fact=fact(), reason=CancellationReason.OUT_OF_STOCK)
    assert (cancelled.status, cancelled.version) == (Status.CANCELLED, 3)
    assert isinstance(event, OrderCancelled)
    assert (event.reason, event.order_version) == ("out_of_stock", 3)
    with pytest.raises(NotInState):
        orders.cancel(cancelled, fact=fact(), reason=CancellationReason.DUPLICATE)
