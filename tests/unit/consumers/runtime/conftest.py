"""What the runtime's unit tests share: records without a broker."""

from collections.abc import Callable
from typing import Any

import pytest

from consumers.runtime.claims import payload_hash
from consumers.runtime.record import Record
from orderflow.testing import order_created
from retry.story import Origin, Story
from schemas import codec
from schemas.events import Event
from schemas.headers import Headers, event_headers

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """Make the record of an event as the reader would: `make_record(event, offset=3, attempts=1, value=b"...")`."""

    def make(
        event: Event | None = None, *, offset: int = 0, partition: int = 0, attempts: int = 0, **fields: Any
    ) -> Record:
        event = event or order_created()
        value = codec.encode(event)
        headers: Headers = [*event_headers(event)]
        given: dict[str, Any] = {
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "epoch": 1,
            "key": str(event.order_id).encode(),
            "value": value,
            "headers": headers,
            "timestamp_ms": 1_000,
            "due": 0.0,
            "story": Story(Origin("orders", partition, offset, 1_000), attempts=attempts),
            "event_id": str(event.event_id),
            "payload_hash": payload_hash(value),
        }
        return Record(**(given | fields))

    return make
