"""PostgreSQL connections: one pool per process, each owner under its own role."""

from typing import Any

from psycopg import Connection, OperationalError, ProgrammingError, conninfo
from psycopg import connect as psycopg_connect
from psycopg_pool import ConnectionPool

from orderflow.core.causes import postgres
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import DatabaseSettings

# Owner (and schema) to the role that its processes work under.
ROLES = {
    "api": "orderflow_api",
    "email": "orderflow_email",
    "inventory": "orderflow_inventory",
    "audit": "orderflow_audit",
}


def dsn(database: DatabaseSettings, owner: str | None = None, *, limit_seconds: float | None = None) -> str:
    """Return a connection string; with `owner`, one whose sessions start under that owner's role.

    `limit_seconds` ends a statement that takes longer (`QueryCanceled`), a transaction whose client says nothing
    for as long (a frozen process would keep its locks for ever), and a connection whose server has acknowledged
    nothing for as long (Linux only).
    """
    chosen: dict[str, str | int] = {"application_name": f"orderflow-{owner or 'admin'}", "connect_timeout": 5}
    options = [f"-c role={ROLES[owner]}"] if owner else []
    if limit_seconds is not None:
        milliseconds = int(limit_seconds * 1000)
        options.append(f"-c statement_timeout={milliseconds}")
        options.append(f"-c idle_in_transaction_session_timeout={milliseconds}")
        chosen["tcp_user_timeout"] = milliseconds
    if options:
        chosen["options"] = " ".join(options)
    return conninfo.make_conninfo(**(_parts(database) | chosen))


def pool(
    database: DatabaseSettings, owner: str, *, size: int | None = None, limit_seconds: float | None = None
) -> ConnectionPool[Connection]:
    """Return a closed pool of connections under the owner's role; use it as a context manager.

    `limit_seconds` is the time limit of a statement, as for `dsn`.
    `pool.connection()` raises `psycopg_pool.PoolTimeout` (an `OperationalError`) after `pool_timeout_seconds`.
    """
    return ConnectionPool(
        dsn(database, owner, limit_seconds=limit_seconds),
        min_size=1,
        max_size=size or database.pool_size,
        timeout=database.pool_timeout_seconds,
        check=ConnectionPool.check_connection,
        open=False,
        name=owner,
    )


def connect(database: DatabaseSettings, owner: str | None = None, *, autocommit: bool = False) -> Connection:
    """Open one connection.

    Raises `Misconfigured` with the cause: the server, the database or the role is not there, a wrong password.
    """
    try:
        return psycopg_connect(dsn(database, owner), autocommit=autocommit)
    except OperationalError as error:
        raise Misconfigured(postgres.sentence(error, address(database))) from None


def address(database: DatabaseSettings) -> str:
    """Return `host:port/database` of the DSN, without its password."""
    parts = _parts(database)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _parts(database: DatabaseSettings) -> dict[str, Any]:
    try:
        return conninfo.conninfo_to_dict(database.dsn.get_secret_value())
    except ProgrammingError:
        # Its own words quote the string, password and all.
        message = "ORDERFLOW_DATABASE__DSN is no connection string: postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise Misconfigured(message) from None
