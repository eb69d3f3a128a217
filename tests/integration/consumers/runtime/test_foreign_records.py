"""Garbage, cut, foreign and oversize records on the source: the worker lives, each ends as the table says."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from consumers.runtime.group import ConsumerGroup, Delivery, Outcome
from orderflow.core.settings import Settings
from orderflow.testing import Found, GroupHarness, make_group, order_created, order_paid, tuned
from schemas import codec
from schemas import headers as names
from schemas.events import Event, OrderCreated
from schemas.headers import Headers, event_headers, is_reserved

Raw = tuple[bytes | None, bytes | None, Headers]
UNKNOWN_ID = (99_999).to_bytes(5, "big")


def of(event: Event, *, value: bytes | None = None, key: bytes | None = b"key", more: Headers | None = None) -> Raw:
    return key, codec.encode(event) if value is None else value, [*event_headers(event), *(more or [])]


def without(record: Raw, name: str) -> Raw:
    key, value, headers = record
    return key, value, [pair for pair in headers if pair[0] != name]


def poison() -> dict[str, Raw]:
    """Return what nobody can read, by a word for each."""
    event = order_created()
    whole = codec.encode(event)
    return {
        "null": (b"key", None, []),
        "empty": (b"", b"", []),
        "noise": (b"\xff\xfe", os.urandom(200), [("x", b"\xff"), ("x", None), ("", b"")]),
        "json": (None, b'{"order": 1}', [("content-type", b"application/json")]),
        "large key": (b"k" * 100_000, b"\x01", []),
        "frame only": of(order_created(), value=whole[:5]),
        "cut": of(order_created(), value=whole[:-3]),
        "trailing": of(order_created(), value=whole + b"\x00"),
        "huge count": of(order_created(), value=whole[:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 3),
        "over the size cap": of(order_created(), value=whole[:5] + os.urandom(300_000)),
        "large before compression": (b"key", bytes(3_000_000), []),
        "no ce_id": without(of(order_created()), names.CE_ID),
        "foreign ce_id": of(order_created(), value=whole),
        "two ids": of(order_created(), more=[(names.CE_ID, b"\xff")]),
        "unknown schema, no type": without(of(order_created(), value=UNKNOWN_ID + b"x"), names.CE_TYPE),
        "forged past": (b"key", b"?", [("retry.rounds", b"9"), ("__dlq.errors.topic", b"bank"), ("dlq.id", b"mine")]),
    }


def skipped() -> dict[str, Raw]:
    """Return what is none of this group's business."""
    paid = order_paid(order_created())
    return {
        "other type": of(paid),
        "other type, cut": of(paid, value=codec.encode(paid)[:9]),
        "new type": (b"key", UNKNOWN_ID + b"body", [(names.CE_ID, b"1"), (names.CE_TYPE, b"shop.orders.OrderShipped")]),
    }


def one_by_one(seen: list[Event]) -> ConsumerGroup:
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        seen.append(event)

    return group


def in_batches(seen: list[Event]) -> ConsumerGroup:
    group = make_group()

    @group.on_batch(OrderCreated)
    def handle(batch: list[tuple[Event, Delivery]], _deps: Any) -> list[Outcome]:
        seen.extend(event for event, _ in batch)
        return [Outcome.PROCESSED] * len(batch)

    return group


def foreign(headers: Headers) -> Headers:
    return [pair for pair in headers if not is_reserved(pair[0])]


@pytest.mark.parametrize("make", [one_by_one, in_batches])
def test_each_ends_where_it_belongs_byte_for_byte(
    settings: Settings, make: Callable[[list[Event]], ConsumerGroup]
) -> None:
    seen: list[Event] = []
    group = make(seen)
    one = tuned(settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 1})}))
    bad = poison()
    before, after = order_created(), order_created()
    with GroupHarness(group, one) as harness:
        harness.publish(before)
        harness.publish_raw([*bad.values(), *skipped().values()])
        harness.publish(after)
        harness.wait_drained(60)
        letters = {letter.integer(names.DLQ_OFFSET): letter for letter in harness.dead_letters()}
        source = {record.offset: record for record in harness.records(harness.topics.source)}
        assert harness.workers[0].alive
    assert [event for event in seen if event in (before, after)] == [before, after]
    assert [word for offset, word in enumerate(bad, 1) if offset not in letters] == []
    assert len(letters) == len(bad)
    for offset, letter in letters.items():
        assert offset is not None
        _same(letter, source[offset])
        assert letter.header(names.DLQ_DISPOSITION) == "POISON"
        assert letter.header(names.DLQ_TOPIC) == one.kafka.source_topic
        assert letter.integer(names.DLQ_DELIVERY_COUNT) == 0


def _same(letter: Found, record: Found) -> None:
    assert (letter.key, letter.value, letter.partition) == (record.key, record.value, record.partition)
    assert foreign(letter.headers) == foreign(record.headers)


def test_a_producer_that_is_deployed_first_is_waited_for_and_nobody_stalls(settings: Settings) -> None:
    seen: list[Event] = []
    group = one_by_one(seen)
    one = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 1})})
    newer = order_created()
    with GroupHarness(group, one, workers=0) as harness:
        worker = harness.start_worker()
        harness.publish_raw([of(newer, value=UNKNOWN_ID + b"newer", key=b"its key")])
        harness.publish(*(order_created() for _ in range(20)))
        harness.wait_until(lambda: len(seen) == 20, "the others to be handled", 60)
        assert harness.committed() == {0: 0}
        assert harness.dead_letters() == []
        worker.stop()
        harness.start_worker(unknown_schema_grace_seconds=0.5)
        harness.wait_drained(60)
        (letter,) = harness.dead_letters()
    assert letter.header(names.DLQ_DISPOSITION) == "UNKNOWN_SCHEMA"
    assert (letter.key, letter.value) == (b"its key", UNKNOWN_ID + b"newer")
    assert newer not in seen
