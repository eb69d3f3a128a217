"""A group that fails on purpose, so that retry topics and dead letters are used; its handlers are plain or `async def`.

What an event does is told by its id alone: `fate_of`. Each run is noted before it does anything, and each effect is
a row more: this group's effects may double, in the windows of a mail.
"""

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from consumers.runtime.group import APPLIED, ConsumerGroup, Delivery, DlqPolicy
from orderflow.core.settings import Settings
from retry.errors import Outage, Reject, Retry
from schemas.events import Event, OrderCreated, OrderPaid

NAME = "trial"
SPECS = ("tests.chaos.trial:group", "tests.chaos.trial:async_group")
TABLES = """
CREATE SCHEMA trial;
CREATE TABLE trial.runs (event_id uuid, attempt int, topic text, partition int, record_offset bigint,
                         maybe_done boolean, pid int, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE trial.effects (event_id uuid, pid int, at timestamptz DEFAULT clock_timestamp());
CREATE INDEX ON trial.runs (event_id);
"""
_RUN = (
    "INSERT INTO trial.runs (event_id, attempt, topic, partition, record_offset, maybe_done, pid)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_RAN = "SELECT count(*) FROM trial.runs WHERE event_id = %s"
_EFFECT = "INSERT INTO trial.effects (event_id, pid) VALUES (%s, %s)"


class Fate(StrEnum):
    """What the handler does with an event."""

    WORKS = "works"
    SLOW = "works slowly"
    ONCE = "asks for a retry once"
    TWICE = "fails twice"
    NEVER = "always fails"
    REJECTED = "is rejected"
    CRASHES_ONCE = "takes the process with it once"
    CRASHES = "always takes the process with it"


# Of a thousand events; the rest works.
_SHARES = (
    (Fate.SLOW, 150),
    (Fate.ONCE, 60),
    (Fate.TWICE, 30),
    (Fate.NEVER, 20),
    (Fate.REJECTED, 20),
    (Fate.CRASHES_ONCE, 2),
    (Fate.CRASHES, 1),
)
# Slow enough that something runs whenever a fault strikes.
SECONDS = {Fate.SLOW: 0.8}
USUAL_SECONDS = 0.03
DIES = frozenset({Fate.NEVER, Fate.REJECTED, Fate.CRASHES})


def fate_of(event_id: str) -> Fate:
    """Return what an event is going to do."""
    number = int.from_bytes(hashlib.sha256(event_id.encode()).digest()[:4], "big") % 1_000
    for fate, share in _SHARES:
        number -= share
        if number < 0:
            return fate
    return Fate.WORKS


def fail(event_id: str, attempt: int, ran: tuple[int] | None) -> None:
    """Raise, or end the process, when it is the event's fate."""
    fate = fate_of(event_id)
    if fate is Fate.CRASHES or (fate is Fate.CRASHES_ONCE and ran == (1,)):
        os.kill(os.getpid(), signal.SIGKILL)
    if fate is Fate.REJECTED:
        raise Reject("as it must")
    if fate is Fate.ONCE and attempt == 1:
        raise Retry("once")
    if fate is Fate.NEVER or (fate is Fate.TWICE and attempt <= 2):
        raise RuntimeError("as it must")


def pool_options(settings: Settings) -> dict[str, Any]:
    """A dead server is noticed while a handler may still wait for it."""
    limits = {"options": "-c statement_timeout=8000", "connect_timeout": 3, "tcp_user_timeout": 8_000}
    return {
        "conninfo": settings.database.dsn.get_secret_value(),
        "min_size": 1,
        "max_size": 8,
        "kwargs": {"autocommit": True, **limits},
        "timeout": 3,
    }


@contextmanager
def open_pool(settings: Settings) -> Iterator[ConnectionPool[Connection]]:
    """Open the trial's tables."""
    with ConnectionPool(**pool_options(settings)) as pool:
        yield pool


@asynccontextmanager
async def open_async_pool(settings: Settings) -> AsyncIterator[AsyncConnectionPool[AsyncConnection]]:
    """Open the trial's tables, for handlers in an event loop."""
    async with AsyncConnectionPool(**pool_options(settings), open=False) as pool:
        yield pool


def make(setup: Any) -> ConsumerGroup:
    policy = DlqPolicy(alert="nobody", replay="never", delete_when={APPLIED}, keep_days=1, note="it dies on purpose")
    return ConsumerGroup(NAME, owner="team-trial", slo_seconds=60, setup=setup, dlq=policy)


group = make(open_pool)
async_group = make(open_async_pool)


def row_of(delivery: Delivery) -> tuple[object, ...]:
    place = (delivery.topic, delivery.partition, delivery.offset)
    return str(delivery.event_id), delivery.attempt, *place, delivery.maybe_done, os.getpid()


# Of an effect whose connection went, nobody knows whether it is there, so it is no outage by the handler's word. But
# to burn an attempt for it would let an outage of minutes fill the dead letters: it is tried again where it is.


@group.on(OrderCreated, OrderPaid)
def try_it(event: Event, delivery: Delivery, pool: ConnectionPool[Connection]) -> None:
    """Note the run, then do what the event's fate is."""
    event_id = str(event.event_id)
    try:
        with pool.connection() as connection:
            connection.execute(_RUN, row_of(delivery))
            ran = connection.execute(_RAN, (event_id,)).fetchone()
        fail(event_id, delivery.attempt, ran)
        time.sleep(SECONDS.get(fate_of(event_id), USUAL_SECONDS))
        with pool.connection() as connection:
            connection.execute(_EFFECT, (event_id, os.getpid()))
    except psycopg.OperationalError as error:
        raise Outage("the trial's database is away") from error


@async_group.on(OrderCreated, OrderPaid)
async def try_it_async(event: Event, delivery: Delivery, pool: AsyncConnectionPool[AsyncConnection]) -> None:
    """Do the same in an event loop."""
    event_id = str(event.event_id)
    try:
        async with pool.connection() as connection:
            await connection.execute(_RUN, row_of(delivery))
            ran = await (await connection.execute(_RAN, (event_id,))).fetchone()
        fail(event_id, delivery.attempt, ran)
        await asyncio.sleep(SECONDS.get(fate_of(event_id), USUAL_SECONDS))
        async with pool.connection() as connection:
            await connection.execute(_EFFECT, (event_id, os.getpid()))
    except psycopg.OperationalError as error:
        raise Outage("the trial's database is away") from error
