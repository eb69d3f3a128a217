"""The outbox: events that stand in the database, encoded, until a delivery report says that Kafka has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection
from psycopg.rows import args_row, class_row, dict_row
from psycopg.types.json import Jsonb
from pydantic_core import from_json

from schemas import codec
from schemas.events import Event
from schemas.headers import event_headers

CHANNEL = "orderflow_outbox"
MAX_ERROR_CHARACTERS = 300

# The end of the statement that makes the event's cause. Of no rows when that cause, the common table `made`, has none.
INSERT = """
INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers, created_at)
SELECT %(event_id)s, %(order_id)s, %(version)s, %(topic)s, %(record_key)s, %(value)s, %(headers)s, %(now)s FROM made
"""

# At most the lowest unpublished version of an order is picked, quarantined or in flight ones
# included: so first occurrences are in version order even when two relays run at the same time,
# since a version is sent only after some relay saw its predecessor's delivery report.
# Each oddity leaves the planner one way, since its statistics are always of another moment (nothing
# pending, or all): ordered by published_at, rows come from the index of pending ones alone, not along
# the primary key past all that was ever published; by coalesce, a predecessor is looked up by its order
# and version, not searched among all that is pending; NOT IN of a subquery is hashed, where
# `<> ALL` of an array compared each row with each id in flight.
_PICK = """
SELECT id, topic, key, value, headers
FROM (
    SELECT o.id, o.topic, o.key, o.value, o.headers::text AS headers, octet_length(o.value) AS bytes,
           sum(octet_length(o.value)) OVER (ORDER BY o.published_at, o.id ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM api.outbox AS o
    WHERE o.published_at IS NULL
      AND o.quarantined_at IS NULL
      AND o.id NOT IN (SELECT unnest(%(in_flight)s::bigint[]))
      AND NOT EXISTS (
          SELECT FROM api.outbox AS earlier
          WHERE earlier.aggregate_id = o.aggregate_id
            AND earlier.aggregate_version < o.aggregate_version
            AND coalesce(earlier.published_at, 'infinity') = 'infinity'
      )
    ORDER BY o.published_at, o.id
    LIMIT %(limit)s
) AS oldest
WHERE bytes_so_far - bytes < %(limit_bytes)s
"""

_QUARANTINE = """
UPDATE api.outbox SET quarantined_at = now(), attempts = attempts + 1, last_error = %s
WHERE id = %s AND published_at IS NULL
"""

_NOTE_FAILED = """
UPDATE api.outbox SET attempts = attempts + 1, last_error = %s
WHERE id = ANY(%s::bigint[]) AND published_at IS NULL
"""

# Rows that wait behind a quarantined one are its order's business, not a backlog.
_BACKLOG = """
SELECT count(*) AS rows, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest_seconds,
       (SELECT count(*) FROM api.outbox WHERE quarantined_at IS NOT NULL AND published_at IS NULL) AS quarantined
FROM api.outbox
WHERE published_at IS NULL
  AND aggregate_id NOT IN (
      SELECT aggregate_id FROM api.outbox WHERE quarantined_at IS NOT NULL AND published_at IS NULL
  )
"""

_LIST = """
SELECT id, event_id::text AS event_id, aggregate_id::text AS order_id, aggregate_version AS order_version, topic,
       octet_length(value) AS bytes, created_at, extract(epoch FROM now() - created_at)::int AS age_seconds,
       quarantined_at, attempts, last_error
FROM api.outbox
WHERE published_at IS NULL AND (quarantined_at IS NOT NULL OR NOT %(quarantined_only)s)
ORDER BY published_at, id
LIMIT %(limit)s
"""

_REQUEUE = """
UPDATE api.outbox SET quarantined_at = NULL
WHERE quarantined_at IS NOT NULL AND published_at IS NULL
  AND (%(event_ids)s::uuid[] IS NULL OR event_id = ANY(%(event_ids)s))
RETURNING event_id::text
"""


class Row(NamedTuple):
    """What the relay needs of an outbox row; `headers` as stored: JSON, a list of name and text."""

    id: int
    topic: str
    key: bytes
    value: bytes
    headers: str


def wire_headers(stored: str) -> list[tuple[str, bytes]]:
    """Return a row's headers as Kafka takes them."""
    return [(name, text.encode()) for name, text in from_json(stored)]


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits for the relay: rows, the age of the oldest in seconds, and rows in quarantine (not in `rows`)."""

    rows: int
    oldest_seconds: float
    quarantined: int


def row(event: Event, *, topic: str, now: datetime, traceparent: str | None) -> dict[str, Any]:
    """Return the parameters of `INSERT`.

    The event is encoded here, so that a schema error fails the request that caused it: raises
    `schemas.errors.EncodeError`.
    """
    headers = [(name, value.decode()) for name, value in event_headers(event, traceparent)]
    return {
        "event_id": event.event_id,
        "order_id": event.order_id,
        "version": event.order_version,
        "topic": topic,
        "record_key": str(event.order_id).encode(),
        "value": codec.encode(event),
        "headers": Jsonb(headers),
        "now": now,
    }


def prepare(connection: Connection) -> None:
    """Make a connection fit for `pick`, and let it hear the bell: no plan that reads or sorts all that is pending."""
    for way in ("bitmapscan", "hashjoin", "mergejoin", "seqscan", "sort", "incremental_sort"):
        connection.execute(f"SET enable_{way} = off")
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute("SET jit = off")
    connection.execute(f"LISTEN {CHANNEL}")


def pick(connection: Connection, *, in_flight: Iterable[int], limit: int, limit_bytes: int) -> list[Row]:
    """Return rows to send, oldest first: of each order at most its lowest unpublished version.

    There are at most `limit` rows, and no more after those whose values have `limit_bytes` together.
    Needs a connection that `prepare` has seen.
    """
    asked = {"in_flight": array(in_flight), "limit": limit, "limit_bytes": limit_bytes}
    with connection.cursor(binary=True, row_factory=args_row(Row)) as cursor:
        return cursor.execute(_PICK, asked).fetchall()


def array(ids: Iterable[int]) -> str:
    """Return ids as PostgreSQL reads an array; psycopg's own way looks at each for characters to quote."""
    return f"{{{','.join(map(str, ids))}}}"


def quarantine(connection: Connection, row_id: int, error: str) -> None:
    """Take a row that Kafka refuses for itself out of the way; the rows of its order wait behind it."""
    connection.execute(_QUARANTINE, (error[:MAX_ERROR_CHARACTERS], row_id))


def note_failed(connection: Connection, ids: Sequence[int], error: str) -> None:
    """Note an attempt that failed for a reason outside the rows; they stay unpublished."""
    connection.execute(_NOTE_FAILED, (error[:MAX_ERROR_CHARACTERS], list(ids)))


def backlog(connection: Connection) -> Backlog:
    """Count what waits."""
    with connection.cursor(row_factory=class_row(Backlog)) as cursor:
        found = cursor.execute(_BACKLOG).fetchone()
    assert found is not None  # noqa: S101 - an aggregate always has one row
    return found


def unpublished(connection: Connection, *, quarantined_only: bool, limit: int) -> list[dict[str, Any]]:
    """Return unpublished rows for a person to look at, without their values."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST, {"quarantined_only": quarantined_only, "limit": limit}).fetchall()


def requeue(connection: Connection, event_ids: Sequence[UUID] | None) -> list[str]:
    """Give quarantined rows back to the relay, all of them for None; return the ids of their events."""
    ids = None if event_ids is None else list(event_ids)
    requeued = [row[0] for row in connection.execute(_REQUEUE, {"event_ids": ids}).fetchall()]
    if requeued:
        ring(connection)
    return requeued


def ring(connection: Connection) -> None:
    """Wake the relay when the caller's transaction commits."""
    connection.execute(f"NOTIFY {CHANNEL}")
