"""What was promised stands in the topic, as it was stored, in order (G1)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.checker.facts import Facts, OutboxRow, Record
from tests.checker.findings import Finding
from tests.checker.windows import gaps, relay_windows


def check(facts: Facts) -> Iterator[Finding]:
    yield from _reported(facts)
    yield from _foreign(facts)
    if facts.outbox is not None:
        yield from _acked(facts, facts.outbox)
        yield from _outbox(facts, facts.outbox)
        yield from _order(facts)


def _reported(facts: Facts) -> Iterator[Finding]:
    there = {record.place for record in facts.records.get(facts.source, ())}
    for place in facts.reported:
        if place not in there:
            yield Finding("acknowledged", "", "", "had a delivery report and is not in the topic", place)


def _foreign(facts: Facts) -> Iterator[Finding]:
    for record in facts.records.get(facts.source, ()):
        if record.place not in facts.events and record.place not in facts.foreign:
            yield Finding("as stored", "", "", "stands in the topic and holds no event of ours", record.place)


def _acked(facts: Facts, outbox: Sequence[OutboxRow]) -> Iterator[Finding]:
    rows = {(row.order_id, row.version) for row in outbox}
    for ack in facts.acks:
        if (ack.order_id, ack.version) not in rows:
            how = f"was answered 201 (order {ack.order_id}, version {ack.version}) and was never stored"
            yield Finding("acknowledged", "", "", how)


def _outbox(facts: Facts, outbox: Sequence[OutboxRow]) -> Iterator[Finding]:
    published = facts.published()
    rows = {row.event_id: row for row in outbox}
    for event_id, row in rows.items():
        records = published.get(event_id, [])
        if not records and row.published:
            yield Finding("acknowledged", "", event_id, "is marked as published and does not stand in the topic")
        elif not records and facts.drained:
            yield Finding("acknowledged", "", event_id, "was stored and never published")
        for record in records:
            if not _same(record, row):
                yield Finding("as stored", "", event_id, "is published otherwise than it was stored", record.place)
        for began, ended in gaps(record.at for record in records):
            if relay_windows(facts.faults, began, ended) is None:
                yield Finding("published once", "", event_id, "stands twice in the topic although nothing happened")
    for event_id in published.keys() - rows.keys():
        yield Finding("as stored", "", event_id, "stands in the topic and was never stored")


def _same(record: Record, row: OutboxRow) -> bool:
    return (record.key, record.value, record.headers) == (row.key, row.value, row.headers)


def _order(facts: Facts) -> Iterator[Finding]:
    versions: dict[str, list[tuple[int, str]]] = defaultdict(list)
    seen: set[str] = set()
    for record in sorted(facts.records.get(facts.source, ()), key=lambda one: one.place):
        event = facts.events.get(record.place)
        if event is not None and event.event_id not in seen:
            seen.add(event.event_id)
            versions[event.order_id].append((event.order_version, event.event_id))
    for found in versions.values():
        for before, after in pairwise(found):
            if after[0] < before[0]:
                yield Finding("version order", "", after[1], f"(version {after[0]}) stands behind version {before[0]}")
