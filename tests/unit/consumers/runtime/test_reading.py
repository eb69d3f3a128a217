"""Reading: the table of verdicts for what can lie on a topic, and when a retry is due."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from consumers.runtime.brokerclock import BrokerClock
from consumers.runtime.claims import payload_hash
from consumers.runtime.reading import Reader
from consumers.runtime.record import Record
from orderflow.core.topics import GroupTopics
from orderflow.testing import make_group, order_created, order_paid
from schemas import codec
from schemas import headers as names
from schemas.catalog import Catalog
from schemas.events import OrderCreated
from schemas.headers import Headers, event_headers

CREATE_TIME, LOG_APPEND_TIME = 1, 2
TIER = "orders.mine.retry.5s"
UNKNOWN_ID = (99_999).to_bytes(5, "big")


@dataclass
class Message:
    """What Kafka hands out."""

    stored_value: bytes | None
    stored_headers: Headers | None = field(default_factory=list)
    stored_key: bytes | None = b"key"
    place: tuple[str, int, int] = ("orders", 3, 17)
    time: tuple[int, int] = (CREATE_TIME, 1_000_000)

    def value(self) -> bytes | None:
        return self.stored_value

    def headers(self) -> Headers | None:
        return self.stored_headers

    def key(self) -> bytes | None:
        return self.stored_key

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.place[2]

    def timestamp(self) -> tuple[int, int]:
        return self.time


def read(message: Message, *, now: float = 50.0) -> Record | None:
    group = make_group(name="mine")
    group.on(OrderCreated)(lambda *_: None)
    topics = GroupTopics("orders", "mine", (1, 5, 30))
    reader = Reader(group, topics, Catalog.load(), BrokerClock())
    found = reader.read([message], reader.assignment(message.place[:2], 4), now)
    return found[0] if found else None


def taken(message: Message, **how: Any) -> Record:
    record = read(message, **how)
    assert record is not None
    return record


def of(event: Any, **fields: Any) -> Message:
    return Message(codec.encode(event), [*event_headers(event)], str(event.order_id).encode(), **fields)


def test_an_event_of_a_handled_type_is_claimable() -> None:
    event = order_created()
    record = taken(of(event))
    assert (record.event_id, record.schema_known) == (str(event.event_id), True)
    assert record.payload_hash == payload_hash(codec.encode(event))
    assert (record.place, record.offset, record.epoch) == (("orders", 3), 17, 4)
    assert (record.key, record.timestamp_ms) == (str(event.order_id).encode(), 1_000_000)
    assert record.story.pair == (0, 0)


def test_an_older_version_of_a_handled_type_is_claimable() -> None:
    event = order_created()
    record = taken(Message(codec.encode_as(event, Catalog.load().entries[0].id), [*event_headers(event)]))
    assert (record.event_id, record.schema_known) == (str(event.event_id), True)


def test_an_event_of_another_type_is_nobodys_business_whatever_its_headers_say() -> None:
    paid = order_paid(order_created())
    assert read(of(paid)) is None
    forged = [(names.CE_TYPE, OrderCreated.type_name.encode()), (names.CE_ID, b"\xff")]
    assert read(Message(codec.encode(paid), [*forged])) is None
    assert read(Message(codec.encode(paid)[:6], None)) is None


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\x00", b"\x00\x00\x00\x00", b"{}", b"\x01" + UNKNOWN_ID[1:], b"\xff" * 1_000],
    ids=["null", "empty", "one byte", "cut frame", "json", "other magic", "noise"],
)
@pytest.mark.parametrize("with_headers", [True, False])
def test_what_is_no_frame_is_unreadable(value: bytes | None, *, with_headers: bool) -> None:
    record = taken(Message(value, [*event_headers(order_created())] if with_headers else None))
    assert record.event_id == ""
    assert (record.key, record.value) == (b"key", value)


def test_a_schema_that_is_unknown_here_is_held_when_its_type_is_handled() -> None:
    event = order_created()
    record = taken(Message(UNKNOWN_ID + b"body", [*event_headers(event)]))
    assert (record.event_id, record.schema_known) == (str(event.event_id), False)


def test_a_schema_that_is_unknown_here_is_passed_over_when_its_type_is_not_handled() -> None:
    headers: Headers = [(names.CE_ID, b"anything"), (names.CE_TYPE, b"shop.orders.OrderShipped")]
    assert read(Message(UNKNOWN_ID + b"body", headers)) is None


@pytest.mark.parametrize("headers", [None, [], [("x", b"y")], [(names.CE_TYPE, None)], [(names.CE_TYPE, b"\xff")]])
def test_a_schema_that_is_unknown_here_without_a_type_is_unreadable(headers: Headers | None) -> None:
    with_id: Headers = [(names.CE_ID, str(order_created().event_id).encode()), *(headers or [])]
    for given in (headers, with_id):
        record = taken(Message(UNKNOWN_ID + b"body", given))
        assert record.event_id == ""


@pytest.mark.parametrize(
    "ce_id",
    [None, b"", b"\xff\xfe", b"17", b"{01234567-89ab-7def-8123-456789abcdef}", b"0123456789AB7DEF8123456789ABCDEF"],
)
def test_an_event_without_a_usable_id_is_unreadable(ce_id: bytes | None) -> None:
    value = codec.encode(order_created())
    assert taken(Message(value, [(names.CE_ID, ce_id)])).event_id == ""
    assert taken(Message(value, None)).event_id == ""


@pytest.mark.parametrize(
    "body", [None, b"", b"H", b"H" + b"0" * 35, b"F" + b"0" * 40, b"H" + b"\xff" * 36, b"\xff" * 60]
)
def test_an_id_that_the_payload_does_not_bear_is_never_claimed(body: bytes | None) -> None:
    victim, carrier = order_created(), order_created()
    value = codec.encode(carrier) if body is None else codec.encode(carrier)[:5] + body
    record = taken(Message(value, [*event_headers(victim)]))
    assert (record.event_id, record.schema_known) == ("", True)


def test_reserved_headers_are_forged_on_the_source_and_believed_on_the_groups_own_topics() -> None:
    event = order_created()
    story: Headers = [*event_headers(event), (names.DLQ_DELIVERY_COUNT, b"2"), (names.DLQ_REPLAY_COUNT, b"1")]
    assert taken(Message(codec.encode(event), story)).story.pair == (0, 0)
    assert taken(Message(codec.encode(event), story, place=(TIER, 3, 0))).story.pair == (1, 2)
    foreign = Message(codec.encode(event), story, place=("orders.other.retry.5s", 3, 0))
    assert taken(foreign).story.pair == (0, 0)


def test_a_copy_is_due_when_its_tiers_delay_is_over_on_the_brokers_clock() -> None:
    event = order_created()
    assert taken(of(event, place=(TIER, 0, 0), time=(LOG_APPEND_TIME, 1_000_000)), now=50.0).due == 55.0
    longer = of(event, place=(TIER, 0, 0), time=(LOG_APPEND_TIME, 1_000_000))
    assert longer.stored_headers is not None
    longer.stored_headers.append((names.RETRY_AFTER, b"60000"))
    assert taken(longer, now=50.0).due == 110.0


def test_what_is_not_on_a_tier_is_due_at_once() -> None:
    assert taken(of(order_created(), time=(LOG_APPEND_TIME, 1_000_000)), now=50.0).due <= 50.0
    assert taken(of(order_created()), now=50.0).due <= 50.0
