"""The state machine of an order's stock: the set of events decides, not their order."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.inventory.orders import Action, Order, State, decide, shortages, wanted
from orderflow.testing.samples import order_cancelled, order_created, order_paid
from schemas.events import Event, OrderCancelled, OrderCreated, OrderPaid

CREATED = order_created({"TEA-100": 3, "CUP-1": 1})
PAID = order_paid(CREATED)
CANCELLED = order_cancelled(CREATED)


@dataclass
class Shelf:
    """Applies decisions as the SQL does, on integers."""

    on_hand: int
    reserved: int = 0
    held: int = 0
    order: Order = field(default_factory=Order)

    def apply(self, event: Event) -> None:
        decision = decide(self.order, event)
        self.order = decision.order
        if decision.action is Action.RESERVE:
            assert isinstance(event, OrderCreated)
            need = sum(wanted(event.lines).values())
            if self.on_hand - self.reserved < need:
                self.order = decision.out_of_stock()
            else:
                self.reserved += need
                self.held += need
        elif decision.action is Action.RELEASE:
            self.reserved -= self.held
            self.held = 0
        assert 0 <= self.reserved <= self.on_hand


def expected(events: set[type[Event]], on_hand: int) -> int:
    need = sum(wanted(CREATED.lines).values())
    return need if OrderCreated in events and OrderCancelled not in events and on_hand >= need else 0


@given(st.lists(st.sampled_from([CREATED, PAID, CANCELLED]), max_size=9), st.sampled_from([0, 3, 4, 100]))
def test_any_order_and_repetition_of_the_same_events_ends_in_the_same_stock(events: list[Event], on_hand: int) -> None:
    shelf = Shelf(on_hand)
    for event in events:
        shelf.apply(event)

    seen = {type(event) for event in events}
    assert shelf.reserved == expected(seen, on_hand)
    assert shelf.order.paid <= (OrderPaid in seen)
    assert (shelf.order.state is State.CANCELLED) == (OrderCancelled in seen)


@given(st.permutations([CREATED, PAID, CANCELLED]))
def test_a_second_run_of_all_events_changes_nothing_and_is_stale(events: list[Event]) -> None:
    order = Order()
    for event in events:
        order = decide(order, event).order
    for event in events:
        decision = decide(order, event)
        assert decision.stale
        assert decision.order == order
        assert decision.action is Action.NONE


def test_versions_that_this_group_never_sees_do_not_hold_up_a_cancellation() -> None:
    order = decide(Order(), CREATED).order

    decision = decide(order, order_cancelled(CREATED, order_version=17))

    assert decision.action is Action.RELEASE
    assert decision.order == Order(State.CANCELLED, paid=False, last_version=17)


def test_a_creation_after_the_cancellation_reserves_nothing() -> None:
    order = decide(Order(), CANCELLED).order

    decision = decide(order, CREATED)

    assert decision.stale
    assert decision.action is Action.NONE
    assert decision.order.state is State.CANCELLED


def test_a_payment_that_overtakes_the_creation_does_not_cost_the_reservation() -> None:
    order = decide(Order(), PAID).order

    decision = decide(order, CREATED)

    assert decision.action is Action.RESERVE
    assert decision.order == Order(State.RESERVED, paid=True, last_version=2)


def test_cancelling_an_order_that_got_nothing_releases_nothing() -> None:
    got_nothing = decide(Order(), CREATED).out_of_stock()

    assert decide(got_nothing, CANCELLED).action is Action.NONE


def test_several_lines_of_one_article_are_one_demand_and_articles_are_sorted() -> None:
    lines = (*order_created({"Z": 1, "A": 2}).lines, *order_created({"Z": 5}).lines)

    assert list(wanted(lines).items()) == [("A", 2), ("Z", 6)]


def test_an_article_that_nobody_stocks_is_short() -> None:
    assert shortages({"A": 1, "B": 2, "C": 1}, {"A": 1, "B": 1}) == ["B", "C"]


def test_an_event_without_a_rule_is_refused() -> None:
    class OrderLost(Event):
        type_name = "shop.orders.OrderLost"

    event = OrderLost(**CREATED.model_dump(include={"event_id", "occurred_at", "order_id", "order_version"}))
    with pytest.raises(TypeError, match="OrderLost"):
        decide(Order(), event)
