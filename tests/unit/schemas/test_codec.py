import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, errors
from schemas.catalog import Catalog
from schemas.events import OrderCancelled, OrderCreated, OrderLine, OrderPaid

V1, PAID = 100001, 100003
NEWEST = Catalog.load().newest("shop.orders.OrderCreated").id

money = st.decimals(min_value=0, max_value=Decimal("99999999999999.9999"), places=4)
code = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)
counts = st.integers(min_value=1, max_value=2**31 - 1)
lines = st.builds(OrderLine, sku=code, quantity=counts, unit_price=money)
envelope: dict[str, st.SearchStrategy[Any]] = {
    "event_id": st.uuids(),
    "occurred_at": st.datetimes(timezones=st.just(UTC)),
    "order_id": st.uuids(),
    "order_version": counts,
}
orders = st.builds(
    OrderCreated,
    **envelope,
    customer_id=st.uuids(),
    currency=st.from_regex(r"[A-Z]{3}", fullmatch=True),
    lines=st.lists(lines, min_size=1, max_size=5),
    total=money,
    channel=code,
    delivery_date=st.none() | st.dates(),
)

paid = st.builds(
    OrderPaid,
    **envelope,
    payment_id=st.uuids(),
    amount=money,
    currency=st.from_regex(r"[A-Z]{3}", fullmatch=True),
    method=code,
)
cancelled = st.builds(OrderCancelled, **envelope, reason=code)


def _body(schema_id: int, record: dict[str, Any]) -> bytes:
    """Write a record as a producer would that knows the schema and not our rules."""
    entry = Catalog.load().by_id(schema_id)
    assert entry is not None
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, entry.schema, record)
    return b"\0" + schema_id.to_bytes(4, "big") + buffer.getvalue()


def _record(event: OrderCreated, **changes: Any) -> dict[str, Any]:
    return {**event.model_dump(), **changes}


@given(orders)
def test_what_is_encoded_decodes_to_an_equal_event(event: OrderCreated) -> None:
    value = codec.encode(event)
    assert codec.frame_id(value) == NEWEST
    assert codec.decode(value) == event


@given(orders)
def test_a_record_of_the_first_version_decodes_to_the_newest_model(event: OrderCreated) -> None:
    value = codec.encode_as(event, V1)
    assert codec.frame_id(value) == V1
    assert codec.decode(value) == event.model_copy(update={"channel": "unknown", "delivery_date": None})


@given(st.one_of(orders, paid, cancelled))
def test_the_event_id_stands_where_it_is_read_without_decoding(
    event: OrderCreated | OrderPaid | OrderCancelled,
) -> None:
    assert codec.event_id(codec.encode(event)) == str(event.event_id)


@given(st.one_of(paid, cancelled))
def test_the_other_types_come_back_equal_too(event: OrderPaid | OrderCancelled) -> None:
    assert codec.decode(codec.encode(event)) == event


def test_a_field_that_the_newest_version_dropped_is_left_out(created: Callable[..., OrderCreated]) -> None:
    """Avro resolution decides, not the model, which would take the field."""
    first, second = Catalog.load().versions("shop.orders.OrderCreated")[:2]
    program = codec.Codec(Catalog([replace(second, version=1), replace(first, version=2)]))
    value = program.encode_as(created(channel="web"), second.id)
    assert program.raw_decode(value)["channel"] == "web"
    assert program.decode(value) == created(channel="unknown")


def test_every_type_is_encoded_in_its_newest_version(paid: OrderPaid, cancelled: OrderCancelled) -> None:
    for event in (paid, cancelled):
        assert codec.decode(codec.encode(event)) == event
        assert codec.frame_id(codec.encode(event)) == Catalog.load().newest(event.type_name).id


def test_the_frame_is_a_zero_and_the_id_in_big_endian(paid: OrderPaid) -> None:
    assert codec.encode(paid)[:5] == bytes.fromhex("00000186a3")


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\0\0\1\x86", b"\1\0\1\x86\xa1", b'{"order": 1}'])
def test_bytes_without_a_frame_have_no_id_and_do_not_decode(value: bytes | None) -> None:
    assert codec.frame_id(value) is None
    for read in (codec.decode, codec.raw_decode):
        with pytest.raises(codec.NotFramed):
            read(value)


def test_an_id_outside_the_lock_is_unknown_and_named() -> None:
    value = b"\0\0\0\0\x07anything"
    assert codec.frame_id(value) == 7
    for read in (codec.decode, codec.raw_decode):
        with pytest.raises(codec.UnknownSchema, match="7") as caught:
            read(value)
        assert caught.value.schema_id == 7


def test_a_newer_version_of_a_known_type_is_unknown_to_an_older_program(created: Callable[..., OrderCreated]) -> None:
    older = codec.Codec(Catalog(entry for entry in Catalog.load().entries if entry.id != NEWEST))
    with pytest.raises(codec.UnknownSchema):
        older.decode(codec.encode(created()))


def test_a_locked_type_without_a_model_is_unknown_and_still_can_be_shown(paid: OrderPaid) -> None:
    entry = Catalog.load().newest(paid.type_name)
    program = codec.Codec(Catalog([replace(entry, subject="shop.orders.OrderLost")]))
    with pytest.raises(codec.UnknownSchema):
        program.decode(codec.encode(paid))
    assert program.raw_decode(codec.encode(paid))["method"] == "card"


def test_no_proper_prefix_of_a_record_decodes(created: Callable[..., OrderCreated]) -> None:
    value = codec.encode(created())
    for end in range(5, len(value)):
        with pytest.raises(codec.Malformed):
            codec.decode(value[:end])


def test_bytes_after_the_record_are_refused(paid: OrderPaid) -> None:
    for read in (codec.decode, codec.raw_decode):
        with pytest.raises(codec.TrailingBytes, match="1 bytes"):
            read(codec.encode(paid) + b"\0")


def test_the_body_of_another_type_does_not_decode(paid: OrderPaid, created: Callable[..., OrderCreated]) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(codec.encode(paid)[:5] + codec.encode(created())[5:])


def test_a_value_over_the_cap_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastavro, "schemaless_reader", lambda *_: pytest.fail("the decoder was called"))
    head = b"\0" + NEWEST.to_bytes(4, "big")
    with pytest.raises(codec.TooLarge, match="262145"):
        codec.decode(head.ljust(codec.MAX_BYTES + 1, b"\0"))
    with pytest.raises(codec.TooLarge):
        codec.Codec(Catalog.load(), max_bytes=10).decode(head.ljust(11, b"\0"))


def test_a_value_of_exactly_the_cap_decodes(paid: OrderPaid) -> None:
    value = codec.encode(paid)
    assert codec.Codec(Catalog.load(), max_bytes=len(value)).decode(value) == paid


@pytest.mark.parametrize(
    "changes",
    [
        {"order_version": 0},
        {"currency": "euro"},
        {"lines": []},
        {"lines": [{"sku": "A", "quantity": -5, "unit_price": Decimal(1)}]},
        {"total": Decimal(-1)},
    ],
    ids=str,
)
def test_well_formed_avro_that_is_no_valid_event_is_refused(
    created: Callable[..., OrderCreated], changes: dict[str, Any]
) -> None:
    value = _body(NEWEST, _record(created(), **changes))
    with pytest.raises(codec.InvalidEvent, match=next(iter(changes))):
        codec.decode(value)
    assert codec.raw_decode(value)["currency"]


@pytest.mark.parametrize("unscaled", [10**18, 1234567890123456789, 10**30, -(10**18)])
def test_money_of_more_than_18_digits_is_refused_and_not_rounded(paid: OrderPaid, unscaled: int) -> None:
    raw = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    with pytest.raises(codec.InvalidEvent, match="amount"):
        codec.decode(_body(PAID, {**paid.model_dump(), "amount": raw}))


@pytest.mark.parametrize(
    "changes",
    [
        {"occurred_at": datetime(2026, 3, 1)},  # noqa: DTZ001 - naive on purpose
        {"total": Decimal("0.00001")},
        {"order_version": 2**40},
        {"lines": (OrderLine.model_construct(sku="A", quantity=-1, unit_price=Decimal(1)),)},
        {"event_id": "not-a-uuid"},
        {"channel": None},
    ],
    ids=str,
)
def test_an_event_that_went_around_its_model_is_not_encoded(
    created: Callable[..., OrderCreated], changes: dict[str, Any]
) -> None:
    with pytest.raises(codec.EncodeError, match=next(iter(changes))):
        codec.encode(created().model_copy(update=changes))


def test_trailing_zeros_of_money_do_not_matter(created: Callable[..., OrderCreated]) -> None:
    assert codec.encode(created(total=Decimal("1.000000"))) == codec.encode(created(total=Decimal(1)))
    assert codec.encode(created(total=Decimal("1E+3"))) == codec.encode(created(total=Decimal(1000)))


def test_an_event_over_the_cap_is_not_encoded(created: Callable[..., OrderCreated]) -> None:
    with pytest.raises(codec.EncodeError, match="limit of 100"):
        codec.Codec(Catalog.load(), max_bytes=100).encode(created())


def test_a_model_that_lacks_a_field_of_its_schema_is_not_encoded(created: Callable[..., OrderCreated]) -> None:
    """The writer is strict: it would otherwise put the default on the topic without a word."""
    entry = Catalog.load().newest("shop.orders.OrderCreated")
    document = json.loads(json.dumps(entry.document))
    document["fields"].append({"name": "not_in_the_model", "type": "boolean", "default": False})
    newer = replace(entry, document=document, schema=fastavro.parse_schema(document, named_schemas={}))
    with pytest.raises(codec.EncodeError, match="does not fit"):
        codec.Codec(Catalog([newer])).encode(created())


def test_an_older_version_can_only_be_of_the_same_type(created: Callable[..., OrderCreated]) -> None:
    for schema_id in (PAID, 7):
        with pytest.raises(codec.EncodeError, match="no version of"):
            codec.encode_as(created(), schema_id)


def test_raw_decoding_gives_the_record_as_it_was_written(created: Callable[..., OrderCreated]) -> None:
    record = codec.raw_decode(codec.encode_as(created(), V1))
    assert "channel" not in record
    assert record["event_id"] == UUID("01930000-0000-7000-8000-000000000001")
    assert record["lines"] == [{"sku": "TEA-GREEN-250", "quantity": 2, "unit_price": Decimal("7.45")}]
    assert codec.raw_decode(codec.encode(created(delivery_date=date(2026, 3, 5))))["delivery_date"] == date(2026, 3, 5)


def test_no_message_contains_a_value_of_the_record(created: Callable[..., OrderCreated]) -> None:
    for value in (
        _body(NEWEST, _record(created(), currency="SECRET-VALUE")),
        _body(NEWEST, _record(created(), channel="SECRET-VALUE" * 10)),
        codec.encode(created(channel="SECRET-VALUE"))[:-5],
        codec.encode(created(channel="SECRET-VALUE")) + b"SECRET-VALUE",
    ):
        with pytest.raises(codec.DecodeError) as caught:
            codec.decode(value)
        assert "SECRET-VALUE" not in str(caught.value)


def test_reasons_are_a_closed_set_of_metric_labels() -> None:
    leaves = {error.reason for error in errors.DecodeError.__subclasses__()}
    assert leaves == codec.REASONS
    assert len(leaves) == len(errors.DecodeError.__subclasses__())
    assert all(label.replace("_", "").isalpha() and label.islower() for label in leaves)
