"""Deletes old rows of one table in batches: short transactions, no waiting for a locked row, one pass a run."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from psycopg import Connection, sql

from orderflow.core.sweep import Sweep


def cutoff(connection: Connection, sweep: Sweep) -> datetime:
    """Return the moment before which rows are old, by the database's clock."""
    row = connection.execute("SELECT now() - %s", (sweep.kept,)).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    before: datetime = row[0]
    return before


def count(connection: Connection, sweep: Sweep, before: datetime) -> int:
    """Return how many rows are old."""
    query = sql.SQL("SELECT count(*) FROM {table} WHERE {condition}").format(**_parts(sweep))
    row = connection.execute(query, {"before": before}).fetchone()
    return int(row[0]) if row else 0


def batches(connection: Connection, sweep: Sweep, before: datetime, size: int) -> Iterator[int]:
    """Delete the old rows, `size` at a time, each batch a transaction; yield how many rows a batch had.

    A row that somebody holds (another janitor, a request that renews its key) is left for the next run. Goes through
    the table once, by its key: what is younger is passed and not looked at again.
    """
    after: Sequence[Any] | None = None
    while True:
        with connection.transaction():
            rows = _lock(connection, sweep, before, after, size)
            # By its place: the rows are ours until the transaction ends.
            query = sql.SQL("DELETE FROM {table} WHERE ctid = ANY(%(places)s::tid[])").format(**_parts(sweep))
            deleted = connection.execute(query, {"places": [row[0] for row in rows]}).rowcount if rows else 0
        yield deleted
        if len(rows) < size:
            return
        after = rows[-1][1:]


def _lock(
    connection: Connection, sweep: Sweep, before: datetime, after: Sequence[Any] | None, size: int
) -> list[tuple[Any, ...]]:
    names = {f"after_{number}": value for number, value in enumerate(after or ())}
    beyond = (
        sql.SQL("AND ({key}) > ({values})").format(
            key=sql.SQL(sweep.key), values=sql.SQL(", ").join(sql.Placeholder(name) for name in names)
        )
        if after
        else sql.SQL("")
    )
    query = sql.SQL(
        "SELECT ctid::text, {key} FROM {table} WHERE {condition} {beyond}"
        " ORDER BY {key} LIMIT %(size)s FOR UPDATE SKIP LOCKED"
    ).format(**_parts(sweep), beyond=beyond)
    return connection.execute(query, {"before": before, "size": size, **names}).fetchall()


def _parts(sweep: Sweep) -> dict[str, sql.Composable]:
    return {"table": sql.SQL(sweep.table), "key": sql.SQL(sweep.key), "condition": sql.SQL(sweep.condition)}
