"""One relay leads: an advisory lock on a connection that PostgreSQL ends when its owner falls silent."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Connection

from orderflow.core import database, log
from orderflow.core.lifecycle import Stop
from orderflow.core.settings import Settings

# Two numbers: a space of its own, which the idempotency keys' hashes do not share.
LOCK = (673_373_569, 1)

_log = log.get(__name__)


@contextmanager
def leading(settings: Settings, stop: Stop) -> Iterator[Connection | None]:
    """Wait for the lock; yield the connection that holds it, None when a stop came first.

    The connection lasts as long as something is asked on it at least once in `relay.lease_seconds`.
    """
    lease = settings.relay.lease_seconds
    with database.connect(settings.database, "api", autocommit=True) as connection:
        _end_when_silent(connection, lease)
        told = False
        while not _locks(connection):
            if not told:
                _log.info("another relay leads; waiting")
                told = True
            if stop.wait(min(settings.relay.poll_seconds, lease / 3)):
                yield None
                return
        yield connection


def _end_when_silent(connection: Connection, seconds: float) -> None:
    # The kernel of a frozen process goes on to acknowledge: keepalives find a dead machine, never that. The first
    # setting ends a session that waits for its client's next statement, the second one that waits, in the
    # middle of an answer, for its client to read on.
    for setting in ("idle_session_timeout", "tcp_user_timeout"):
        connection.execute("SELECT set_config(%s, %s, false)", (setting, f"{int(seconds * 1000)}ms"))


def _locks(connection: Connection) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", LOCK).fetchone()
    return bool(row and row[0])
