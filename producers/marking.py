"""Marking rows as published while the relay goes on: PostgreSQL works on one statement, we on Kafka."""

from collections.abc import Sequence

from psycopg import Connection, errors, generators, postgres
from psycopg.pq import ExecStatus

from producers import outbox

_MARK = b"UPDATE api.outbox SET published_at = now() WHERE id = ANY($1) AND published_at IS NULL"
_BIGINTS = postgres.types["int8"].array_oid


class Marking:
    """One marking under way, in its own transaction; its connection takes no other statement until `finish`.

    It is sent in one piece, so whatever becomes of us, PostgreSQL finishes it. `ids` are the rows whose
    delivery reports have no error. Raises `psycopg.OperationalError` when the connection is lost.
    """

    def __init__(self, connection: Connection, ids: Sequence[int]) -> None:
        self.ids = ids
        self._connection = connection
        connection.pgconn.send_query_params(_MARK, [outbox.array(ids).encode()], [_BIGINTS])
        connection.pgconn.flush()

    def done(self) -> bool:
        """Whether `finish` would return at once."""
        pgconn = self._connection.pgconn
        if pgconn.flush():
            return False
        pgconn.consume_input()
        return not pgconn.is_busy()

    def finish(self) -> None:
        """Wait for PostgreSQL's answer. Raises `psycopg.Error` with its complaint; nothing is marked then."""
        for result in self._connection.wait(generators.execute(self._connection.pgconn)):
            if result.status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
