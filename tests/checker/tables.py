"""What the groups' tables must say, told from the log alone: audit rows, stock and reservations (G3)."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.checker.facts import CANCELLED, CREATED, AuditRow, Event, Facts, Record, Stock
from tests.checker.findings import Finding
from tests.checker.log import GroupLog


def check_audit(log: GroupLog, rows: Sequence[AuditRow]) -> Iterator[Finding]:
    """One row per event, with the hash of its value, and a place where the event really stands."""
    name = log.group.name
    values = _by_place(log.facts)
    seen: Counter[tuple[int, str]] = Counter()
    for row in rows:
        seen[row.epoch, row.event_id] += 1
        records = log.published.get(row.event_id)
        if not records:
            yield Finding("exactly once", name, row.event_id, "has an audit row and was never published")
            continue
        if row.sha256 != hashlib.sha256(records[0].value or b"").digest():
            yield Finding("exactly once", name, row.event_id, "has an audit row with another hash than its value's")
        event = log.facts.events[records[0].place]
        told = (row.type_name, row.order_id, row.order_version)
        if told != (event.type_name, event.order_id, event.order_version):
            yield Finding("exactly once", name, row.event_id, f"has an audit row that says {told}")
        there = values.get(row.place)
        if there is None or there.value != records[0].value:
            yield Finding("exactly once", name, row.event_id, "has an audit row that names another place", row.place)
    for (_, event_id), times in seen.items():
        if times > 1:
            yield Finding("exactly once", name, event_id, f"has {times} audit rows")


def check_stock(log: GroupLog, stock: Stock) -> Iterator[Finding]:
    """Each order's pieces are reserved once, given back once, and the sums agree."""
    name = log.group.name
    orders = _orders(log)
    held: dict[str, dict[str, int]] = defaultdict(dict)
    sums: Counter[str] = Counter()
    for (order_id, sku), quantity in stock.reservations.items():
        held[order_id][sku] = quantity
        sums[sku] += quantity
    for order_id, events in orders.items():
        how = _wrong(events, stock, stock.states.get(order_id, "none"), held[order_id])
        if how:
            yield Finding("exactly once", name, events[-1].event_id, f"of order {order_id}: it {how}")
    for order_id in held.keys() - orders.keys():
        yield Finding("exactly once", name, "", f"order {order_id} has reservations and no event that was applied")
    for sku, reserved in stock.reserved.items():
        if reserved != sums[sku]:
            yield Finding("exactly once", name, "", f"{sku} has {reserved} pieces reserved, orders hold {sums[sku]}")
        if reserved > stock.on_hand.get(sku, 0):
            yield Finding("exactly once", name, "", f"{sku} is sold twice: {reserved} of {stock.on_hand.get(sku, 0)}")


def _wrong(events: Sequence[Event], stock: Stock, state: str, held: dict[str, int]) -> str | None:
    """Say what is wrong with an order to which these events were applied, in whatever sequence."""
    created = next((event for event in events if event.type_name == CREATED), None)
    cancelled = any(event.type_name == CANCELLED for event in events)
    wanted = dict(created.pieces) if created and not cancelled else {}
    right = "cancelled" if cancelled else "reserved" if created else "unknown"
    if right == "reserved" and state == "out_of_stock" and stock.scarce & wanted.keys():
        return f"is short of stock and has {held} reserved" if held else None
    if state != right:
        return f"is {state}, {right} is right"
    return f"has {held} reserved, {wanted} is right" if held != wanted else None


def _orders(log: GroupLog) -> dict[str, list[Event]]:
    """The events of each order that the group has applied; a dead or a pending one has no effect."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event_id, records in log.published.items():
        if event_id in log.ended:
            event = log.facts.events[records[0].place]
            found[event.order_id].append(event)
    return found


def _by_place(facts: Facts) -> dict[object, Record]:
    return {record.place: record for records in facts.records.values() for record in records}
