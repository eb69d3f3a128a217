"""The audit rows: only ever added to. All SQL of recording."""

import hashlib
from collections.abc import Sequence
from uuid import UUID

from psycopg import Connection

from consumers.runtime.group import Delivery
from schemas.events import Event

RELATION = "audit.rows"

_RECORD = """
INSERT INTO audit.rows (epoch, event_id, event_type, order_id, order_version, occurred_at,
                        topic, partition, record_offset, value_sha256)
SELECT * FROM unnest(%s::int[], %s::uuid[], %s::text[], %s::uuid[], %s::int[], %s::timestamptz[],
                     %s::text[], %s::int[], %s::bigint[], %s::bytea[])
ON CONFLICT DO NOTHING RETURNING epoch, event_id
"""


def record(connection: Connection, batch: Sequence[tuple[Event, Delivery]]) -> set[tuple[int, UUID]]:
    """Add one row per event that has none, in one statement; return (epoch, event id) of the new rows."""
    # By event id, so that two who record the same events wait for each other instead of in a circle.
    rows = [_row(event, delivery) for event, delivery in sorted(batch, key=lambda pair: pair[0].event_id)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return {(epoch, event_id) for epoch, event_id in connection.execute(_RECORD, columns)} if rows else set()


def _row(event: Event, delivery: Delivery) -> tuple[object, ...]:
    return (
        delivery.idempotency_epoch,
        event.event_id,
        event.type_name,
        event.order_id,
        event.order_version,
        event.occurred_at,
        delivery.topic,
        delivery.partition,
        delivery.offset,
        hashlib.sha256(delivery.value).digest(),
    )
