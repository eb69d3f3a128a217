"""What groups with an effect in PostgreSQL share: how they start, and what its errors mean to a handler."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection, errors
from psycopg_pool import ConnectionPool

from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from retry.errors import Outage, Retry

# Another transaction was in the way; the same work succeeds when it is done again.
_CONTENTION = (errors.SerializationFailure, errors.DeadlockDetected)
# The server, or our right to use it, is not there; psycopg_pool's time-outs are OperationalErrors.
_OUTAGE = (psycopg.OperationalError, errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)


@contextmanager
def failures_named() -> Iterator[None]:
    """Turn PostgreSQL's errors into a handler's words; only for work that a rollback or an inbox makes repeatable.

    Raises `Retry` on a serialization failure or a deadlock, `Outage` when the server is away, read-only or
    refuses us, and when a statement or the wait for a connection takes too long. All else passes unchanged.
    """
    try:
        yield
    except _CONTENTION as error:
        raise Retry(f"PostgreSQL: {type(error).__name__}") from error
    except _OUTAGE as error:
        raise Outage(f"PostgreSQL: {type(error).__name__}") from error


@contextmanager
def opened(settings: Settings, owner: str, *relations: str) -> Iterator[ConnectionPool[Connection]]:
    """Hand out a pool under the owner's role, once the database and these relations are known to be there.

    A statement takes no longer than a handler may (`worker.deadline_seconds`).
    Raises `Misconfigured` when the server does not answer or a relation is missing or out of reach.
    """
    with connected(settings, owner, *relations):
        pass
    with database.pool(settings.database, owner, limit_seconds=settings.worker.deadline_seconds) as pool:
        yield pool


@contextmanager
def connected(settings: Settings, owner: str, *relations: str) -> Iterator[Connection]:
    """Hand out one connection under the owner's role, committed at the end. Raises as `opened` does."""
    with database.connect(settings.database, owner) as connection:
        for relation in relations:
            _require(connection, relation)
        yield connection


def _require(connection: Connection, relation: str) -> None:
    try:
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (relation,)).fetchone()
        there = found is not None and bool(found[0])
    except errors.InsufficientPrivilege:
        there = False
    if not there:
        raise Misconfigured(
            f"database {connection.info.dbname} has no {relation} that we may use: "
            f"run `orderflow db apply` (part of `orderflow provision`)"
        )
