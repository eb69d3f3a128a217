"""What the runtime's unit tests share: records without a broker."""

from collections.abc import Callable
from typing import Any

import pytest

from consumers.runtime.claims import payload_hash
from consumers.runtime.record import Record
from orderflow.testing import order_created
from schemas import codec
from schemas.events import Event
from schemas.headers import event_headers
from tests import records

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """Make the record of an event as the reader would: `make_record(event, offset=3, attempts=1, value=b"...")`."""

    def make(
        event: Event | None = None, *, offset: int = 0, partition: int = 0, attempts: int = 0, **fields: Any
    ) -> Record:
        event = event or order_created()
        given: dict[str, Any] = {
            "key": str(event.order_id).encode(),
            "value": codec.encode(event),
            "headers": [*event_headers(event)],
            "event_id": str(event.event_id),
        }
        given |= fields
        return records.make(
            offset=offset,
            partition=partition,
            attempts=attempts,
            **({"payload_hash": payload_hash(given["value"])} | given),
        )

    return make
