from typing import Any

import pytest

from schemas import headers
from schemas.events import OrderPaid

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_an_event_carries_the_cloudevents_headers_and_no_more(paid: OrderPaid) -> None:
    assert headers.event_headers(paid) == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"01930000-0000-7000-8000-000000000001"),
        ("ce_type", b"shop.orders.OrderPaid"),
        ("ce_source", b"/orderflow/api"),
        ("content-type", b"application/avro"),
    ]


def test_a_valid_traceparent_is_passed_on(paid: OrderPaid) -> None:
    assert headers.event_headers(paid, TRACE)[5:] == [("traceparent", TRACE.encode())]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACE.upper(),
        TRACE + "-my-own-text",
        TRACE + "\n",
        "ff" + TRACE[2:],
        TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TRACE.replace("00f067aa0ba902b7", "0" * 16),
        TRACE.replace("-", "_"),
        "\u0660\u0660" + TRACE[2:],
    ],
)
def test_any_other_traceparent_is_left_out(paid: OrderPaid, text: str) -> None:
    assert len(headers.event_headers(paid, text)) == 5


def test_every_name_of_a_copy_is_reserved_and_no_name_of_an_event_is(paid: OrderPaid) -> None:
    names = [value for name, value in vars(headers).items() if name.startswith(("DLQ_", "RETRY_"))]
    assert len(names) == len(set(names)) >= 18
    assert all(headers.is_reserved(name) for name in names)
    assert not any(headers.is_reserved(name) for name, _ in headers.event_headers(paid, TRACE))


def test_stripping_keeps_all_other_headers_byte_equal_and_in_order() -> None:
    foreign: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("a", b"2"),
        ("a", None),
        ("", b""),
        ("a", b""),
        ("Retry.x", b"\xff"),
        ("retryx", b""),
    ]
    forged: list[tuple[str, bytes | None]] = [
        ("retry.rounds", b"9"),
        ("dlq.id", None),
        ("__dlq.errors.group", b"email"),
        ("__dlq.anything", b""),
    ]
    assert headers.strip_reserved([*forged, *foreign, *forged]) == foreign
    assert headers.strip_reserved(None) == []


def test_the_last_value_of_a_name_counts() -> None:
    many: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"2"), ("b", b"3")]
    assert headers.header(many, "a") == "2"
    assert headers.integer(many, "a") == 2


@pytest.mark.parametrize("value", [None, b"\xff\xfe"])
def test_a_value_that_is_no_text_reads_as_absent(value: Any) -> None:
    assert headers.header([("a", value)], "a") is None
    assert headers.header(None, "a") is None
    assert headers.header([], "a") is None


def test_an_empty_value_is_an_empty_text() -> None:
    assert headers.header([("a", b"")], "a") == ""


@pytest.mark.parametrize(
    "value",
    [None, b"", b" 1", b"1 ", b"+1", b"-1", b"1.0", b"0x1", b"1_000", "\u0663".encode(), b"\xff", b"9" * 5000, b"1\n"],
)
def test_a_malformed_number_reads_as_absent_and_never_raises(value: Any) -> None:
    assert headers.integer([("a", value)], "a") is None


@pytest.mark.parametrize(("value", "number"), [(b"0", 0), (b"007", 7), (b"1772368245123", 1772368245123)])
def test_a_decimal_number_is_read(value: bytes, number: int) -> None:
    assert headers.integer([("a", value)], "a") == number
