"""PostgreSQL connections: one pool per process, each owner under its own role."""

import select
from typing import Any, Final

from psycopg import Connection, OperationalError, ProgrammingError, conninfo, errors
from psycopg import connect as psycopg_connect
from psycopg_pool import ConnectionPool

from orderflow.core import elsewhere
from orderflow.core.causes import postgres
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import DatabaseSettings

# Owner (and schema, but for the janitor) to the role that its processes work under.
ROLES = {
    "api": "orderflow_api",
    "email": "orderflow_email",
    "inventory": "orderflow_inventory",
    "audit": "orderflow_audit",
    "janitor": "orderflow_janitor",
}

# How long the pool tries for one lost connection, in seconds. Its pauses double up to this, so it is also how late a
# pool may come back after an outage, however long that was: the next caller starts the next series.
_RECONNECT_SECONDS: Final = 5.0
# How much later than the server the client gives a statement up, in seconds: the server's own word is the better one.
_SILENCE_SECONDS: Final = 1.0


class LimitedConnection(Connection):
    """A connection that gives a silent server up, where the limits of the server and of TCP do not help.

    A frozen PostgreSQL ends no statement, and its kernel goes on to acknowledge what is sent. The connection is closed
    then, and `psycopg.OperationalError` raised: whether a COMMIT was done is unknown.
    """

    silence_seconds: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for the server, at most `silence_seconds` at a time unless `timeout` says otherwise."""
        if timeout is not None or self.silence_seconds is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.silence_seconds)
        except errors._WaitTimeout:  # noqa: SLF001 - the documented outcome of `timeout`, by its only name
            self.pgconn.finish()
            raise OperationalError("the server said nothing for too long; the connection is closed") from None


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
    database: DatabaseSettings,
    owner: str,
    *,
    size: int | None = None,
    limit_seconds: float | None = None,
    autocommit: bool = False,
) -> ConnectionPool[Connection]:
    """Return a closed pool of connections under the owner's role; use it as a context manager.

    `limit_seconds` is the time limit of a statement, as for `dsn`; a second later a server that says nothing at all is
    given up. `pool.connection()` raises `psycopg_pool.PoolTimeout` (an `OperationalError`) after
    `pool_timeout_seconds`. With `autocommit` a statement is its own transaction, unless a `transaction()` is open.
    """

    def configure(connection: Connection) -> None:
        assert isinstance(connection, LimitedConnection)  # noqa: S101 - the pool makes no others
        connection.silence_seconds = None if limit_seconds is None else limit_seconds + _SILENCE_SECONDS

    return ConnectionPool(
        dsn(database, owner, limit_seconds=limit_seconds),
        connection_class=LimitedConnection,
        kwargs={"autocommit": autocommit},
        min_size=1,
        max_size=size or database.pool_size,
        timeout=database.pool_timeout_seconds,
        configure=configure,
        check=_still_open,
        reconnect_timeout=_RECONNECT_SECONDS,
        open=False,
        name=owner,
    )


def _still_open(connection: Connection) -> None:
    """Raise for a connection that its server has closed, without a round trip for the many that are well.

    What an idle connection has to read is its end, or a word of the server's: only then is the server asked.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        ConnectionPool.check_connection(connection)


def connect(database: DatabaseSettings, owner: str | None = None, *, autocommit: bool = False) -> Connection:
    """Open one connection.

    Raises `Misconfigured` with the cause: the server, the database or the role is not there, a wrong password.
    """
    try:
        return psycopg_connect(dsn(database, owner), autocommit=autocommit)
    except OperationalError as error:
        told = postgres.sentence(error, address(database)) + elsewhere.hint(database, "dsn")
        raise Misconfigured(told) from None


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
