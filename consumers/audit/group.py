"""Audit: one append-only row for every event of every order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.audit import rows
from consumers.runtime import postgres
from consumers.runtime.group import APPLIED, ConsumerGroup, Delivery, DlqPolicy, Outcome
from orderflow.core.settings import Settings
from schemas.events import EVENTS, Event

Pool = ConnectionPool[Connection]


@contextmanager
def open_rows(settings: Settings) -> Iterator[Pool]:
    """Open the audit database. Raises `Misconfigured` when it, or the table, is not there."""
    with postgres.opened(settings, "audit", rows.RELATION) as pool:
        yield pool


group = ConsumerGroup(
    "audit",
    owner="team-audit",
    slo_seconds=900,
    ordering="none",
    setup=open_rows,
    dlq=DlqPolicy(
        alert="audit-oncall",
        replay="always, once the cause is mended: every event needs its row",
        delete_when={APPLIED},
        keep_days=3650,
        note="`orderflow audit verify` names what has no row.",
    ),
)


@group.on_batch(*EVENTS.values())
def record(batch: Sequence[tuple[Event, Delivery]], pool: Pool) -> list[Outcome]:
    """Record the events of a batch. Raises `Retry` on contention, `Outage` without a database."""
    with postgres.failures_named(), pool.connection() as connection:
        new = rows.record(connection, batch)
    outcomes = []
    for event, delivery in batch:
        identity = delivery.idempotency_epoch, event.event_id
        outcomes.append(Outcome.PROCESSED if identity in new else Outcome.DUPLICATE)
        new.discard(identity)  # a second copy in the same batch did nothing
    return outcomes
