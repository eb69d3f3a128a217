"""What the peers' handlers do, and how a run of theirs ends; imports what every peer's environment has."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task

WAIT_SECONDS = 0.005
CLAIM_MS = 72 * 3_600_000


def _seconds(task: Task, value: bytes) -> float:
    if task.work == "nothing":
        return 0.0
    return int(value) / 1e6 if task.work == "drawn" else WAIT_SECONDS


def _read(task: Task) -> Callable[[bytes], Any]:
    if not task.decoded:
        return bytes
    # Ours, found by the path that the parent set; only this workload needs its dependencies.
    from schemas import codec  # noqa: PLC0415

    return codec.decode


def plain(task: Task, meter: Meter) -> Callable[[bytes, str], None]:
    """Return a handler of a value and the record's own name, which blocks."""
    read, client = _read(task), redis.Redis.from_url(task.redis_url)

    def handle(value: bytes, name: str) -> None:
        read(value)
        if task.claims and not client.set(f"{task.group}:{name}", 1, nx=True, px=CLAIM_MS):
            raise RuntimeError(f"{name} was claimed already")
        if seconds := _seconds(task, value):
            time.sleep(seconds)
        if task.claims:
            client.set(f"{task.group}:{name}", "done", px=CLAIM_MS)
        meter.handled()

    return handle


def awaited(task: Task, meter: Meter) -> Callable[[bytes, str], Awaitable[None]]:
    """Return the same as a coroutine."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(task.redis_url, max_connections=task.in_flight, timeout=None)
    read, client = _read(task), redis.asyncio.Redis(connection_pool=pool)

    async def handle(value: bytes, name: str) -> None:
        read(value)
        if task.claims and not await client.set(f"{task.group}:{name}", 1, nx=True, px=CLAIM_MS):
            raise RuntimeError(f"{name} was claimed already")
        if seconds := _seconds(task, value):
            await asyncio.sleep(seconds)
        if task.claims:
            await client.set(f"{task.group}:{name}", "done", px=CLAIM_MS)
        meter.handled()

    return handle
