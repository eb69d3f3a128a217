"""Compares the audit rows with the source topic, both read whole; the comparison runs inside PostgreSQL."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from confluent_kafka import Message
from psycopg import Connection, sql

from consumers.audit.rows import RELATION
from consumers.audit.source import SourceLog
from consumers.runtime import postgres
from orderflow.core.settings import Settings
from schemas import codec, headers

EXAMPLES = 20
_CHUNK = 5_000
Seen = tuple[UUID, bytes]
Progress = Callable[[int, int], None]

_MISSING = (
    "SELECT DISTINCT event_id FROM seen WHERE NOT EXISTS (SELECT FROM audit.rows r WHERE r.event_id = seen.event_id)"
)
_DIFFERENT = """
SELECT DISTINCT r.event_id FROM audit.rows r WHERE EXISTS (SELECT FROM seen s WHERE s.event_id = r.event_id)
AND NOT EXISTS (SELECT FROM seen s WHERE s.event_id = r.event_id AND s.value_sha256 = r.value_sha256)
"""
_COUNTED = "SELECT count(*), (array_agg(event_id::text ORDER BY event_id))[1:%(examples)s] FROM ({}) AS ids"
_WITHOUT_RECORD = """
SELECT DISTINCT r.event_id FROM audit.rows r
WHERE r.recorded_at <= %(before)s AND NOT EXISTS (SELECT FROM seen s WHERE s.event_id = r.event_id)
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """How many events are wrong in one way, and the ids of the first `EXAMPLES` of them."""

    count: int = 0
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What the comparison found.

    `records` were read, of which `foreign` are no events of ours and `repeated` hold an event that another
    record holds too. `missing` events have no row, `different` rows hold the hash of other bytes,
    `without_record` rows have no record. `unread` offsets could not be read.
    """

    records: int
    foreign: int
    events: int
    repeated: int
    rows: int
    unread: int
    missing: Finding = field(default_factory=Finding)
    different: Finding = field(default_factory=Finding)
    without_record: Finding = field(default_factory=Finding)

    @property
    def wrong(self) -> bool:
        """Whether something is certainly wrong; a row's record may lie in what could not be read."""
        return bool(self.missing.count or self.different.count or (self.without_record.count and not self.unread))


def verify(settings: Settings, progress: Progress = lambda _passed, _total: None) -> Report:
    """Read the source topic from zero to its present end and compare it with the rows.

    `progress` is told (offsets passed, offsets in all). Raises `Misconfigured` when the database, the
    cluster or the topic is not there, `PartialOrUnknown` when the cluster stops answering on the way.
    """
    with postgres.opened(settings, "audit", RELATION) as pool, pool.connection() as connection:
        connection.autocommit = True  # a transaction as long as the log would hold up vacuum everywhere
        connection.execute("CREATE TEMPORARY TABLE seen (event_id uuid, value_sha256 bytea)")
        try:
            before = _one(connection, "SELECT clock_timestamp()")
            with SourceLog(settings) as log:
                records, foreign = _note_all(connection, log, progress)
                return _compare(connection, before, records=records, foreign=foreign, unread=log.unread)
        finally:
            connection.execute("DROP TABLE seen")
            connection.autocommit = False


def seen_in(message: Message) -> Seen | None:
    """Return event id and sha256 of a record's value, or None when no group would take it for an event."""
    value = message.value()
    try:
        event = codec.decode(value)
        named = UUID(headers.header(headers.of(message), headers.CE_ID) or "")
    except (codec.DecodeError, ValueError):
        return None
    return (event.event_id, hashlib.sha256(value or b"").digest()) if named == event.event_id else None


def _note_all(connection: Connection, log: SourceLog, progress: Progress) -> tuple[int, int]:
    records = foreign = 0
    chunk: list[Seen] = []
    progress(0, log.total)
    for message in log:
        records += 1
        seen = seen_in(message)
        if seen is None:
            foreign += 1
        else:
            chunk.append(seen)
        if len(chunk) == _CHUNK:
            _note(connection, chunk)
            chunk.clear()
        if records % _CHUNK == 0:
            progress(log.passed, log.total)
    _note(connection, chunk)
    progress(log.passed, log.total)
    return records, foreign


def _note(connection: Connection, chunk: Iterable[Seen]) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY seen FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["uuid", "bytea"])
        for row in chunk:
            copy.write_row(row)


def _compare(connection: Connection, before: datetime, *, records: int, foreign: int, unread: int) -> Report:
    """Compare. Rows recorded after `before` may belong to records beyond the end that was read."""
    connection.execute("CREATE INDEX ON seen (event_id)")
    connection.execute("ANALYZE seen")
    events: int = _one(connection, "SELECT count(DISTINCT event_id) FROM seen")
    return Report(
        records=records,
        foreign=foreign,
        events=events,
        repeated=records - foreign - events,
        rows=_one(connection, "SELECT count(*) FROM audit.rows"),
        unread=unread,
        missing=_finding(connection, _MISSING),
        different=_finding(connection, _DIFFERENT),
        without_record=_finding(connection, _WITHOUT_RECORD, before=before),
    )


def _finding(connection: Connection, event_ids: str, **parameters: datetime) -> Finding:
    row = connection.execute(
        sql.SQL(_COUNTED).format(sql.SQL(event_ids)), {**parameters, "examples": EXAMPLES}
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate always returns one row
    return Finding(row[0], tuple(row[1] or ()))


def _one(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101 - each of these queries returns one row
    return row[0]
