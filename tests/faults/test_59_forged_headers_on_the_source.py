"""Another producer forges our headers on the source topic, or an event id that is not the payload's."""

from typing import Any
from uuid import uuid4

import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import Found, GroupHarness, make_group, order_created, tuned
from retry.errors import Reject, Retry
from schemas import codec
from schemas import headers as names
from schemas.events import OrderCreated
from schemas.headers import Headers, event_headers, is_reserved

# Each would end the event early if it were believed: its budget spent, its copy superseded, its death known.
FORGED: Headers = [
    (names.DLQ_DELIVERY_COUNT, b"99"),
    (names.RETRY_ROUNDS, b"99"),
    (names.RETRY_AFTER, b"86400000"),
    (names.DLQ_REPLAY_COUNT, b"99"),
    (names.DLQ_REPLAY_ID, b"a run that never was"),
    (names.DLQ_ID, b"another's death"),
    (names.DLQ_GROUP, b"bank"),
    (names.DLQ_TOPIC, b"bank"),
    (names.DLQ_PARTITION, b"-1"),
    (names.DLQ_OFFSET, b"\xff"),
    (names.DLQ_TIMESTAMP, b"1" * 40),
    (names.DLQ_DISPOSITION, b"EXHAUSTED"),
    ("retry.", None),
    ("dlq.of-a-later-version", b"x"),
]
FOREIGN: Headers = [("x-shop", b"north"), ("x-shop", None), ("retry", b"no dot: not ours"), ("DLQ.id", b"\x00\xff")]


@pytest.fixture
def one_partition(settings: Settings) -> Settings:
    kafka = settings.kafka.model_copy(update={"partitions": 1})
    return tuned(settings.model_copy(update={"kafka": kafka}), retry_seconds=(1, 2))


def test_forged_headers_are_stripped_at_the_first_hop_and_none_is_believed(one_partition: Settings) -> None:
    seen: list[Delivery] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        seen.append(delivery)
        if delivery.attempt < 3:
            message = "not yet"
            raise Retry(message)
        message = "never"
        raise Reject(message)

    event = order_created()
    headers = [*FORGED[:7], *event_headers(event), *FOREIGN, *FORGED[7:]]
    with GroupHarness(group, one_partition) as harness:
        harness.publish_raw([(b"key", codec.encode(event), headers)])
        harness.wait_drained(60)
        (source,) = harness.records(harness.topics.source)
        copies = [harness.records(tier) for tier in harness.topics.tiers]
        (letter,) = harness.dead_letters()

    assert [delivery.attempt for delivery in seen] == [1, 2, 3]
    assert [len(of_tier) for of_tier in copies] == [1, 1]
    for copy in (*(of_tier[0] for of_tier in copies), letter):
        assert (copy.key, copy.value) == (source.key, source.value)
        assert foreign(copy) == foreign(source) == [*event_headers(event), *FOREIGN]
        assert told(copy, names.DLQ_GROUP) == [group.name.encode()]
        assert told(copy, names.DLQ_TOPIC) == [one_partition.kafka.source_topic.encode()]
        assert (copy.integer(names.DLQ_PARTITION), copy.integer(names.DLQ_OFFSET)) == (source.partition, source.offset)
        assert not {"retry.", "dlq.of-a-later-version", names.DLQ_REPLAY_ID} & {name for name, _ in copy.headers}
    assert [copy[0].integer(names.DLQ_DELIVERY_COUNT) for copy in copies] == [1, 2]
    assert letter.integer(names.DLQ_DELIVERY_COUNT) == 3
    assert letter.header(names.DLQ_DISPOSITION) == "PERMANENT"
    assert letter.header(names.DLQ_ID) != "another's death"
    assert letter.integer(names.DLQ_REPLAY_COUNT) in (None, 0)


def test_an_event_id_that_is_not_the_payloads_is_poison_and_blocks_no_real_event(one_partition: Settings) -> None:
    seen: list[OrderCreated] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        seen.append(event)

    victim, carrier = order_created(), order_created()
    as_the_victim = [(n, str(victim.event_id).encode() if n == names.CE_ID else v) for n, v in event_headers(carrier)]
    no_uuid = [(name, b"1" if name == names.CE_ID else value) for name, value in event_headers(carrier)]
    nobodys = [(n, str(uuid4()).encode() if n == names.CE_ID else v) for n, v in event_headers(carrier)]
    value = codec.encode(carrier)
    with GroupHarness(group, one_partition) as harness:
        harness.publish_raw([(b"key", value, headers) for headers in (as_the_victim, no_uuid, nobodys)])
        harness.publish(victim, carrier)
        harness.wait_drained(60)
        letters = harness.dead_letters()

    assert {event.event_id for event in seen} == {victim.event_id, carrier.event_id}
    assert len(seen) == 2
    assert [letter.header(names.DLQ_DISPOSITION) for letter in letters] == ["POISON"] * 3
    assert [letter.integer(names.DLQ_OFFSET) for letter in letters] == [0, 1, 2]


def foreign(record: Found) -> Headers:
    return [pair for pair in record.headers if not is_reserved(pair[0])]


def told(record: Found, name: str) -> list[bytes | None]:
    return [value for key, value in record.headers if key == name]
