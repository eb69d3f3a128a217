"""Header names, and how headers are read and cleaned: the one table of them in the code.

Headers are confluent-kafka's: a list of (name, bytes or None), or None for no headers. Names may
repeat and values may be None or empty; whatever is not ours passes through byte-equal.
"""

import re
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from schemas.events import Event

Headers = list[tuple[str, bytes | None]]
"""Headers as confluent-kafka hands them out and takes them."""

# CloudEvents 1.0, binary content mode.
CE_SPECVERSION = "ce_specversion"
CE_ID = "ce_id"
CE_TYPE = "ce_type"
CE_SOURCE = "ce_source"
CONTENT_TYPE = "content-type"
TRACEPARENT = "traceparent"

SPECVERSION = "1.0"
SOURCE = "/orderflow/api"
AVRO = "application/avro"

# Where a copy comes from; written at the first hop and kept.
DLQ_TOPIC = "__dlq.errors.topic"
DLQ_PARTITION = "__dlq.errors.partition"
DLQ_OFFSET = "__dlq.errors.offset"
DLQ_TIMESTAMP = "__dlq.errors.timestamp"
DLQ_GROUP = "__dlq.errors.group"

# How it went so far; replaced at each hop.
DLQ_DELIVERY_COUNT = "__dlq.errors.delivery.count"
RETRY_ROUNDS = "retry.rounds"
# Milliseconds from this copy's own timestamp, when the handler asked for more than its tier's delay.
RETRY_AFTER = "retry.after"
DLQ_STAGE = "__dlq.errors.stage"
DLQ_DISPOSITION = "__dlq.errors.disposition"
DLQ_EXCEPTION_CLASS = "__dlq.errors.exception.class.name"
DLQ_EXCEPTION_MESSAGE = "__dlq.errors.exception.message"
DLQ_EXCEPTION_STACKTRACE = "__dlq.errors.exception.stacktrace"
DLQ_FIRST_TIMESTAMP = "__dlq.errors.first.timestamp"
DLQ_FIRST_EXCEPTION_CLASS = "__dlq.errors.first.exception.class.name"
DLQ_FINGERPRINT = "__dlq.errors.fingerprint"

# The identity of a death, and of the runs that replayed it.
DLQ_ID = "dlq.id"
DLQ_REPLAY_COUNT = "dlq.replay.count"
DLQ_REPLAY_ID = "dlq.replay.id"

RESERVED_PREFIXES = ("retry.", "dlq.", "__dlq.")
"""Believed only on the group's own retry and replay topics; stripped at the first hop from a source topic."""

# W3C Trace Context, level 1: no all-zero ids, version ff is invalid. A longer form that a future
# version may define is not passed on: it could carry a caller's free text.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# 19 digits hold every 64-bit number; longer ones are forged.
_DECIMAL = re.compile(rb"[0-9]{1,19}")
# By way of C: a direct call, once the interpreter has specialised it, does not look whether the method
# left an error behind, which then comes up wherever the next one looks.
_headers_of = methodcaller("headers")


def event_headers(event: Event, traceparent: str | None = None) -> list[tuple[str, bytes]]:
    """Return the CloudEvents headers of an event, and `traceparent` when it is valid by W3C's rules."""
    headers = [
        (CE_SPECVERSION, SPECVERSION.encode()),
        (CE_ID, str(event.event_id).encode()),
        (CE_TYPE, event.type_name.encode()),
        (CE_SOURCE, SOURCE.encode()),
        (CONTENT_TYPE, AVRO.encode()),
    ]
    if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
        headers.append((TRACEPARENT, traceparent.encode()))
    return headers


def of(message: Any) -> Headers | None:
    """Return the headers of a message of confluent-kafka; None when a name is not UTF-8. Ask once per message.

    The client then raises `SystemError` instead of handing them out, and at the second call hands out
    a list that ends the process when it is read.
    """
    try:
        return _headers_of(message) or []
    except SystemError:
        return None


def is_reserved(name: str) -> bool:
    """Say whether only this program may write a header of that name."""
    return name.startswith(RESERVED_PREFIXES)


def strip_reserved(headers: Sequence[tuple[str, bytes | None]] | None) -> Headers:
    """Return all other headers, byte-equal and in their order, repeated names included."""
    return [(name, value) for name, value in headers or () if not is_reserved(name)]


def header(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> str | None:
    """Return the last value of that name; None when there is none or it is not UTF-8 text."""
    value = _last(headers, name)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def integer(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> int | None:
    """Return the last value of that name as a number from 0; None when there is none or it is malformed."""
    value = _last(headers, name)
    return int(value) if value is not None and _DECIMAL.fullmatch(value) else None


def _last(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    for key, value in reversed(headers or ()):
        if key == name:
            return value
    return None
