"""Wakes the relay after commits, from a thread of its own."""

import threading
from typing import Final, Self

from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

from producers import outbox

# How long rings gather before the next one goes out, in seconds: one wakes the relay for all that is committed.
_REST_SECONDS: Final = 0.005


class Bell:
    """Tells the relay that there are events, once for many commits. A context manager.

    Not by a NOTIFY in the transactions themselves: PostgreSQL holds one lock for the whole server from such a
    transaction's commit to its end, so that commits wait for the disk one after the other. A ring that is lost with
    the process costs one of the relay's polls.
    """

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)

    def ring(self) -> None:
        """Ask for a ring; returns at once."""
        self._wanted.set()

    def __enter__(self) -> Self:
        """Start ringing."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ring for the last ones, and stop."""
        self._ended.set()
        self._wanted.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        ended = False
        while not ended:
            self._wanted.wait()
            # Looked at before the ring, so that what was committed before the end is told.
            ended = self._ended.is_set()
            self._wanted.clear()
            try:
                with self._pool.connection() as connection:
                    outbox.ring(connection)
            except OperationalError:
                continue  # the relay polls
            self._ended.wait(_REST_SECONDS)
