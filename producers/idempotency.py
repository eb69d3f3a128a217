"""Idempotency keys: one answer per key and owner, kept in the transaction that made it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import Connection

# The name of the unique index by which the database says that a key stands already.
CONSTRAINT = "idempotency_keys_pkey"

# The lock ends with the transaction, so a process that dies leaves nothing behind. A hash that
# collides makes two keys wait for each other, no more.
_LOCK = "pg_try_advisory_xact_lock(hashtextextended(%(owner)s || chr(31) || %(key)s, 0))"
_CLAIM = f"SELECT {_LOCK} AS ours"

# A statement of its own: what it sees must be newer than the lock.
_FIND = """
SELECT fingerprint, body, location FROM api.idempotency_keys
WHERE owner = %(owner)s AND key = %(key)s AND created_at > now() - %(kept)s
"""

_KEEP = """
INSERT INTO api.idempotency_keys (owner, key, fingerprint, body, location, created_at)
VALUES (%(owner)s, %(key)s, %(fingerprint)s, %(body)s, %(location)s, now())
ON CONFLICT (owner, key) DO UPDATE
SET fingerprint = excluded.fingerprint, body = excluded.body, location = excluded.location, created_at = now()
"""

# The beginning of one statement that takes a key, keeps its answer and makes the order. `fresh` has a row only for a
# key that nobody holds and that stands for nothing. Should another transaction have kept an answer after this
# statement's snapshot and before its lock, the unique index fails the whole of it.
FRESH = f"""
claim AS MATERIALIZED (SELECT {_LOCK} AS ours),
fresh AS MATERIALIZED (
    SELECT FROM claim
    WHERE ours AND NOT EXISTS (SELECT FROM api.idempotency_keys WHERE owner = %(owner)s AND key = %(key)s)
),
kept AS (
    INSERT INTO api.idempotency_keys (owner, key, fingerprint, body, location, created_at)
    SELECT %(owner)s, %(key)s, %(fingerprint)s, %(body)s, %(location)s, now() FROM fresh
)
"""  # noqa: S608 - made of constants


class IdempotencyError(Exception):
    """Base of what is wrong with the use of an Idempotency-Key; the message is for the caller."""


class InProgress(IdempotencyError):
    """Raised when another request with the same key has not ended yet (409)."""


class Reused(IdempotencyError):
    """Raised when the key stands for another request already (422)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A 201: its JSON body, its Location, and whether it was given before."""

    body: bytes
    location: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A caller's key, the hash of what it was sent with, and how long it counts."""

    owner: str
    key: str
    fingerprint: bytes
    kept: timedelta

    def former_answer(self, connection: Connection) -> Answer | None:
        """Take the key for this transaction; return the answer it stands for, or None when it is new.

        Raises `InProgress` and `Reused`.
        """
        names = {"owner": self.owner, "key": self.key, "kept": self.kept}
        if not _one(connection, _CLAIM, names)[0]:
            message = "a request with this Idempotency-Key is in progress"
            raise InProgress(message)
        found = connection.execute(_FIND, names).fetchone()
        if found is None:
            return None
        fingerprint, body, location = found
        if fingerprint != self.fingerprint:
            message = "this Idempotency-Key was sent with another request before; use a new key"
            raise Reused(message)
        return Answer(body, location, replayed=True)

    def keep(self, connection: Connection, answer: Answer) -> None:
        """Store the answer in the caller's transaction."""
        connection.execute(_KEEP, self.row(answer))

    def row(self, answer: Answer) -> dict[str, Any]:
        """Return the parameters of `FRESH`."""
        return {
            "owner": self.owner,
            "key": self.key,
            "fingerprint": self.fingerprint,
            "body": answer.body,
            "location": answer.location,
        }


def _one(connection: Connection, query: str, parameters: Any) -> Sequence[Any]:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return row
