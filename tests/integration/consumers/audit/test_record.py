"""The audit group on a real PostgreSQL."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.audit.group import open_rows, record
from consumers.runtime.group import Outcome
from orderflow.core.settings import Settings
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid
from retry.errors import Outage

Pool = ConnectionPool[Connection]


@pytest.fixture
def pool(provisioned: Settings) -> Iterator[Pool]:
    with open_rows(provisioned) as opened:
        yield opened


def test_a_batch_becomes_one_row_per_event_and_a_second_copy_is_a_duplicate(
    pool: Pool, admin: psycopg.Connection
) -> None:
    order = order_created()
    events = [order, order_paid(order), order, order_cancelled(order)]
    batch = [
        (event, delivery_of(event, "audit", partition=3, offset=offset)) for offset, event in enumerate(events, 10)
    ]

    outcomes = record(batch, pool)

    assert outcomes == [Outcome.PROCESSED, Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.PROCESSED]
    rows = admin.execute(
        "SELECT event_id, event_type, order_id, order_version, occurred_at, topic, partition, value_sha256"
        " FROM audit.rows ORDER BY order_version"
    ).fetchall()
    assert rows == [
        (
            event.event_id,
            event.type_name,
            order.order_id,
            event.order_version,
            event.occurred_at,
            "orders",
            3,
            hashlib.sha256(delivery.value).digest(),
        )
        for event, delivery in (batch[0], batch[1], batch[3])
    ]


def test_only_what_is_new_in_a_redelivered_batch_is_added(pool: Pool, admin: psycopg.Connection) -> None:
    old, new = order_created(), order_created()
    record([(old, delivery_of(old, "audit"))], pool)

    assert record([(event, delivery_of(event, "audit")) for event in (old, new)], pool) == [
        Outcome.DUPLICATE,
        Outcome.PROCESSED,
    ]
    assert record([(old, delivery_of(old, "audit", idempotency_epoch=1))], pool) == [Outcome.PROCESSED]
    assert admin.execute("SELECT count(*) FROM audit.rows").fetchone() == (3,)


def test_two_who_record_the_same_events_in_opposite_order_do_not_block_each_other(
    pool: Pool, admin: psycopg.Connection
) -> None:
    events = [order_created() for _ in range(300)]
    batch = [(event, delivery_of(event, "audit")) for event in events]

    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda turn: record(batch[::turn], pool), [1, -1] * 6))

    assert sum(outcome is Outcome.PROCESSED for one in outcomes for outcome in one) == 300
    assert admin.execute("SELECT count(*) FROM audit.rows").fetchone() == (300,)


def test_a_role_that_lost_its_right_is_an_outage_and_nothing_is_recorded(pool: Pool, admin: psycopg.Connection) -> None:
    event = order_created()
    admin.execute("REVOKE INSERT ON audit.rows FROM orderflow_audit")

    with pytest.raises(Outage, match="InsufficientPrivilege"):
        record([(event, delivery_of(event, "audit"))], pool)

    admin.execute("GRANT INSERT ON audit.rows TO orderflow_audit")
    assert record([(event, delivery_of(event, "audit"))], pool) == [Outcome.PROCESSED]
