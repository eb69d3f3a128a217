"""Records as the reader makes them, without a broker."""

from typing import Any

from confluent_kafka import Message

from consumers.runtime.record import Assignment, Record
from retry.story import Origin, Story
from schemas.headers import Headers

GROUP, IDEMPOTENCY_EPOCH = "mine", 7


def make(
    topic: str = "orders",
    partition: int = 0,
    offset: int = 0,
    *,
    epoch: int = 1,
    key: bytes | None = b"k",
    value: bytes | None = b"",
    headers: Headers | None = None,
    timestamp_ms: int = 1_000,
    attempts: int = 0,
    assignment: Assignment | None = None,
    **fields: Any,
) -> Record:
    """Return the record of such a message; `fields` are set on it. Other topics than `orders` are the group's own."""
    message = Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=[*(headers or [])],
        timestamp=(2, timestamp_ms),
    )
    own = topic != "orders"
    record = Record(
        message,
        assignment or Assignment(topic, partition, epoch, group=GROUP, idempotency_epoch=IDEMPOTENCY_EPOCH, own=own),
    )
    record.story = Story(Origin(topic, partition, offset, timestamp_ms), attempts=attempts)
    for name, what in fields.items():
        setattr(record, name, what)
    return record
