"""Pure: what an event means for an order's stock, whatever came before it. No I/O.

Events of one order may arrive late, twice or out of order: a retry lets later ones pass. So the
outcome depends on the *set* of events seen, not on their sequence: a cancellation wins over
everything, and a creation reserves once unless it was cancelled before. There is no rule about
gaps: versions of types that this group does not handle are missing by design.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from schemas.events import Event, OrderCancelled, OrderCreated, OrderLine, OrderPaid


class State(StrEnum):
    """Where an order stands in the stock room."""

    UNKNOWN = "unknown"  # its creation has not come yet
    RESERVED = "reserved"
    OUT_OF_STOCK = "out_of_stock"
    CANCELLED = "cancelled"  # also when the creation comes later: it does nothing then


class Action(StrEnum):
    """What has to happen to the stock."""

    NONE = "none"
    RESERVE = "reserve"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Order:
    """What is known of an order."""

    state: State = State.UNKNOWN
    paid: bool = False
    last_version: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What an event does: the order as it is afterwards, and what happens to the stock.

    `stale` means that it came too late to change anything. When the action is `RESERVE`, `order` is
    what holds if there is enough; `out_of_stock()` is what holds if not.
    """

    order: Order
    action: Action = Action.NONE
    stale: bool = False

    def out_of_stock(self) -> Order:
        """Return the order as it is when nothing could be reserved."""
        return replace(self.order, state=State.OUT_OF_STOCK)


def decide(order: Order, event: Event) -> Decision:
    """Return what `event` does to an order of which `order` is known.

    Raises `TypeError` for an event type that has no meaning here.
    """
    seen = replace(order, last_version=max(order.last_version, event.order_version))
    match event:
        case OrderCreated():
            # Not a matter of versions: after a payment that overtook it, its stock is still owed.
            if order.state is State.UNKNOWN:
                return Decision(replace(seen, state=State.RESERVED), Action.RESERVE)
        case OrderPaid():
            if order.state is not State.CANCELLED and not order.paid:
                return Decision(replace(seen, paid=True))
        case OrderCancelled():
            if order.state is not State.CANCELLED:
                action = Action.RELEASE if order.state is State.RESERVED else Action.NONE
                return Decision(replace(seen, state=State.CANCELLED), action)
        case _:
            raise TypeError(f"no rule for {type(event).__name__}")
    return Decision(seen, stale=True)


def wanted(lines: Iterable[OrderLine]) -> Mapping[str, int]:
    """Return pieces per article, sorted by article: the one order in which stock is locked."""
    pieces: Counter[str] = Counter()
    for line in lines:
        pieces[line.sku] += line.quantity
    return dict(sorted(pieces.items()))


def shortages(pieces: Mapping[str, int], available: Mapping[str, int]) -> list[str]:
    """Return the articles of which there is too little; one that is not in stock at all counts as none."""
    return [sku for sku, quantity in pieces.items() if available.get(sku, 0) < quantity]
