"""Pure: what must become of the sample orders, by the rules of the shop alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from orderflow.ops.samples.shop import SampleOrder


@dataclass(frozen=True, slots=True)
class Due:
    """What is due: a mail to an address, by order; and pieces reserved, by article."""

    mails: Mapping[UUID, str]
    reserved: Mapping[str, int]


def due(placed: Iterable[tuple[UUID, SampleOrder]], addresses: Mapping[UUID, str]) -> Due:
    """Return what is due for the orders that were placed (order id, sample).

    Everybody in the directory gets a mail, also for what is cancelled or short later.
    """
    mails: dict[UUID, str] = {}
    reserved: Counter[str] = Counter()
    for order_id, order in placed:
        if order.customer_id in addresses:
            mails[order_id] = addresses[order.customer_id]
        if order.cancelled is None and order.odd != "out_of_stock":
            for line in order.lines:
                reserved[line.sku] += line.quantity
    return Due(mails, reserved)
