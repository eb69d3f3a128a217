"""What was mailed: one row per event, written before and after the mail server is asked."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from psycopg import Connection

RELATION = "email.deliveries"


class State(StrEnum):
    """How far a mail is."""

    SENDING = "sending"  # the server may have been asked
    SENT = "sent"  # the server said yes: never again
    SKIPPED = "skipped"  # no mail is due


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event's row. A mail that goes out again carries the same `message_id`."""

    state: State
    message_id: str


def begin(connection: Connection, event_id: UUID, message_id: str) -> Attempt:
    """Note that the mail is being sent, and return the row: an older one keeps its state and Message-ID."""
    row = connection.execute(
        "INSERT INTO email.deliveries (event_id, state, message_id) VALUES (%s, 'sending', %s)"
        " ON CONFLICT (event_id) DO UPDATE SET event_id = excluded.event_id RETURNING state, message_id",
        (event_id, message_id),
    ).fetchone()
    assert row is not None  # noqa: S101 - an upsert always returns its row
    return Attempt(State(row[0]), row[1])


def end(connection: Connection, event_id: UUID, state: State) -> None:
    """Note how a mail that was begun has ended; what has ended stays as it is."""
    connection.execute(
        "UPDATE email.deliveries SET state = %s, ended_at = now() WHERE event_id = %s AND state = 'sending'",
        (state.value, event_id),
    )
