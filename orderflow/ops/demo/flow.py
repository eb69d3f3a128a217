"""Lets the orders flow: places them, puts the garbage between them, and waits until nothing is pending."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from orderflow.core import clock, interrupt
from orderflow.core.errors import OrderflowError
from orderflow.ops.demo import odd
from orderflow.ops.demo.client import OrderClient, PlacedOrder
from orderflow.ops.demo.display import Display
from orderflow.ops.demo.progress import Standing, standing
from orderflow.ops.demo.topics import Positions, TopicReader
from orderflow.ops.local.shop import LocalShop
from orderflow.ops.samples.shop import SampleOrder

# The slowest order waits 6 s for its retries; what is pending after this long is told as a difference.
DRAIN_SECONDS = 60.0
_TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Flowed:
    """What was placed, and the positions when nothing was pending any more (or time was up)."""

    placed: Sequence[PlacedOrder]
    positions: Positions


def let_flow(
    shop: LocalShop, client: OrderClient, reader: TopicReader, orders: Sequence[SampleOrder], display: Display
) -> Flowed:
    """Place all orders and wait for their groups.

    Raises `NotPlaced` when the API does not take an order, `PartFailed` when a part or a role dies.
    """
    display.begin("placing orders")
    placed: list[PlacedOrder] = []

    def each(order: PlacedOrder) -> None:
        placed.append(order)
        display.note(f"{len(placed)} of {len(orders)}")

    with ThreadPoolExecutor(2) as background:
        placing = background.submit(client.place_all, orders, each)
        garbage = background.submit(
            odd.put_garbage, shop.stack.kafka.bootstrap_servers, shop.settings.kafka.source_topic
        )
        try:
            while not (placing.done() and garbage.done()):
                _look(shop, reader, display)
        finally:
            client.stop()
    try:
        placing.result()
        garbage.result()
    except OrderflowError:
        shop.assert_alive()  # a death is the better explanation
        raise
    changes = {change for order in placed for change in order.changes}
    display.end(f"{len(placed)} orders placed over HTTP, 1 record of garbage between")
    return Flowed(placed, _drain(shop, reader, display, records=len(changes) + 1))


def _drain(shop: LocalShop, reader: TopicReader, display: Display, *, records: int) -> Positions:
    """Wait until `records` are published and every group is done with them."""
    display.begin("waiting until nothing is pending, retries included")
    until = clock.monotonic() + DRAIN_SECONDS
    while True:
        standings, positions = _look(shop, reader, display)
        published = sum(end for (topic, _), end in positions.ends.items() if topic == reader.groups[0].source)
        drained = published >= records and all(one.drained for one in standings)
        if drained or clock.monotonic() > until:
            while not reader.read_to(positions.ends) and clock.monotonic() < until:
                shop.assert_alive()
            display.end("nothing is pending" if drained else f"something is pending after {DRAIN_SECONDS:.0f} s")
            return positions


def _look(shop: LocalShop, reader: TopicReader, display: Display) -> tuple[list[Standing], Positions]:
    """Read what is new and show where the groups stand. Raises `PartFailed` for a part or role that died."""
    interrupt.heed()
    shop.assert_alive()
    reader.read(_TICK_SECONDS)
    positions = reader.positions()
    now_ms = clock.wall_ms()
    standings = [
        standing(group, positions.committed[group.group_id], positions.ends, reader.first_appended_ms, now_ms)
        for group in reader.groups
    ]
    display.standings(standings)
    return standings, positions
