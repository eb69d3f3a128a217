"""The yardsticks: loops written by hand on the client alone, as quick as we know how to write them.

None of them retries, keeps dead letters, or survives a handler that raises.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from confluent_kafka import Consumer, Message, TopicPartition
from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task, answer
from schemas import codec, headers
from schemas.headers import CE_ID, header

BATCH = 500
COMMIT_SECONDS = 1.0
WAIT_SECONDS = 0.005
CLAIM_MS = 72 * 3_600_000
# Records in memory: enough for many keys to be at hand although a batch comes from one partition.
HELD = 10_000
FLUSH_RECORDS, FLUSH_SECONDS = 64, 0.02


def consumer(task: Task) -> Consumer:
    """Return a subscribed consumer of the task's group."""
    client = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group_id,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # The default of a second makes the client stand still when its queue was full.
            "fetch.queue.backoff.ms": 20,
        }
    )
    client.subscribe([task.topic])
    return client


def loop(task: Task) -> None:
    """`consume(500)`, a handler call a record or a batch, a commit a second."""
    meter, client = Meter(task.calls), consumer(task)
    read = codec.decode if task.decoded else bytes

    def one(_event: Any, _message: Message) -> None:
        meter.handled()

    def many(batch: list[tuple[Any, Message]]) -> None:
        meter.handled_batch(len(batch))

    in_batches, commit_at = task.style == "batch", 0.0
    while not meter.finished.is_set():
        messages = client.consume(BATCH, 0.1)
        _check(messages)
        if in_batches and messages:
            many([(read(message.value() or b""), message) for message in messages])
        elif not in_batches:
            for message in messages:
                one(read(message.value() or b""), message)
        if time.monotonic() > commit_at:
            commit_at = time.monotonic() + COMMIT_SECONDS
            if offsets := _positions(client):
                client.commit(offsets=offsets, asynchronous=True)
    client.commit(offsets=_positions(client), asynchronous=False)
    client.close()
    answer(meter.figures())


def _check(messages: list[Message]) -> None:
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))


def _positions(client: Consumer) -> list[TopicPartition]:
    return [place for place in client.position(client.assignment()) if place.offset >= 0]


class Prefixes:
    """What may be committed: per partition, the offset below which everything is done."""

    def __init__(self) -> None:
        self._pending: dict[int, deque[int]] = {}
        self._done: dict[int, set[int]] = {}

    def delivered(self, partition: int, offset: int) -> None:
        """Note a record that is at work from now."""
        if partition not in self._pending:
            self._pending[partition], self._done[partition] = deque(), set()
        self._pending[partition].append(offset)

    def done(self, partition: int, offset: int) -> None:
        """Note that it is done."""
        self._done[partition].add(offset)

    def advance(self, topic: str) -> list[TopicPartition]:
        """Return the prefixes that grew, and forget what they cover."""
        grown = []
        for partition, pending in self._pending.items():
            done, last = self._done[partition], None
            while pending and pending[0] in done:
                last = pending.popleft()
                done.remove(last)
            if last is not None:
                grown.append(TopicPartition(topic, partition, last + 1))
        return grown


class Keyed:
    """One event loop, `in_flight` coroutines; a key's records one at a time and in order."""

    def __init__(self, task: Task, claims: "Claims | None") -> None:
        self._task = task
        self._claims = claims
        self._meter = Meter(task.calls)
        self._client = consumer(task)
        self._prefixes = Prefixes()
        self._lanes: dict[bytes, deque[Message]] = {}
        self._ready: deque[deque[Message]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._held = 0
        self._handle = _handler(task, self._meter)

    async def run(self) -> None:
        """Work until the task's records are handled and committed."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._task.in_flight)]
        commit_at = 0.0
        while not self._meter.finished.is_set():
            room = min(BATCH, HELD - self._held)
            messages = self._client.consume(room, 0) if room > 0 else []
            if messages:
                await self._admit(messages)
            if self._claims is not None:
                await self._claims.flush_if_due()
            if time.monotonic() > commit_at:
                commit_at = time.monotonic() + COMMIT_SECONDS
                self._commit(asynchronous=True)
            # With a full house there is time; else the next batch is wanted now.
            await asyncio.sleep(0 if messages and self._held < HELD // 2 else 0.002)
            for worker in workers:
                if worker.done():
                    worker.result()
        # The last ones are handled, but not all of them are done.
        while self._held:  # noqa: ASYNC110 - an event would cost the loop that is measured
            await asyncio.sleep(0.002)
        if self._claims is not None:
            await self._claims.flush()
        self._commit(asynchronous=False)
        for worker in workers:
            worker.cancel()
        self._client.close()
        answer(self._meter.figures())

    async def _admit(self, messages: list[Message]) -> None:
        _check(messages)
        for message in messages:
            self._prefixes.delivered(message.partition() or 0, message.offset() or 0)
        self._held += len(messages)
        if self._claims is not None and self._claims.together:
            messages = await self._claims.take_all(messages)
        for message in messages:
            key = message.key() or b""
            lane = self._lanes.get(key)
            if lane is not None:
                lane.append(message)
                continue
            lane = self._lanes[key] = deque((message,))
            self._ready.append(lane)
            if self._idle:
                self._idle.popleft().set_result(None)

    async def _work(self) -> None:
        future_of, claims, done = asyncio.get_running_loop().create_future, self._claims, self._prefixes.done
        while True:
            while not self._ready:
                waiting = future_of()
                self._idle.append(waiting)
                await waiting
            lane = self._ready.popleft()
            message = lane[0]
            if claims is None:
                await self._handle(message)
                done(message.partition() or 0, message.offset() or 0)
            elif claims.together:
                await self._handle(message)
                claims.done_later(message, done)
            else:
                if await claims.take(message):
                    await self._handle(message)
                    await claims.complete(message)
                done(message.partition() or 0, message.offset() or 0)
            self._held -= 1
            lane.popleft()
            if lane:
                self._ready.append(lane)
            else:
                del self._lanes[message.key() or b""]

    def _commit(self, *, asynchronous: bool) -> None:
        if offsets := self._prefixes.advance(self._task.topic):
            if asynchronous:
                self._client.commit(offsets=offsets, asynchronous=True)
            else:
                self._client.commit(offsets=offsets, asynchronous=False)


def _handler(task: Task, meter: Meter) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        if task.decoded:
            codec.decode(message.value())
        meter.in_order(message.key(), message.offset() or 0)
        await asyncio.sleep(int(message.value() or b"0") / 1e6 if task.work == "drawn" else WAIT_SECONDS)
        meter.handled()

    return handle


class Claims:
    """A claim as people write it by hand: SET NX with a time limit, and "done" in its place afterwards."""

    def __init__(self, task: Task, *, together: bool) -> None:
        self.together = together
        self._group = task.group
        pool = BlockingConnectionPool.from_url(task.redis_url, max_connections=task.in_flight, timeout=None)
        self._redis = Redis(connection_pool=pool)
        self._done: list[tuple[Message, Callable[[int, int], None]]] = []
        self._flush_at = 0.0
        self._tokens = itertools.count()

    def _key(self, message: Message) -> str:
        return f"{self._group}:{header(headers.of(message) or [], CE_ID)}"

    async def take(self, message: Message) -> bool:
        """Claim one record, in a round trip of its own."""
        return bool(await self._redis.set(self._key(message), next(self._tokens), nx=True, px=CLAIM_MS))

    async def complete(self, message: Message) -> None:
        """Say that it is done, in another."""
        await self._redis.set(self._key(message), "done", px=CLAIM_MS)

    async def take_all(self, messages: list[Message]) -> list[Message]:
        """Claim a polled batch in one round trip; returns what is ours."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for message in messages:
                pipe.set(self._key(message), next(self._tokens), nx=True, px=CLAIM_MS)
            taken = await pipe.execute()
        assert all(taken), "nobody else claims these"
        return messages

    def done_later(self, message: Message, done: Callable[[int, int], None]) -> None:
        """Say with the next flush that it is done; only then may its offset be committed."""
        self._done.append((message, done))

    async def flush_if_due(self) -> None:
        """Flush 64 records, or what there is every 20 ms."""
        now = time.monotonic()
        if self._done and (len(self._done) >= FLUSH_RECORDS or now >= self._flush_at):
            self._flush_at = now + FLUSH_SECONDS
            await self.flush()

    async def flush(self) -> None:
        """Say of all that are done that they are, in one round trip."""
        ending, self._done = self._done, []
        if not ending:
            return
        async with self._redis.pipeline(transaction=False) as pipe:
            for message, _ in ending:
                pipe.set(self._key(message), "done", px=CLAIM_MS)
            await pipe.execute()
        for message, done in ending:
            done(message.partition() or 0, message.offset() or 0)


def keyed(task: Task) -> None:
    """Keyed loop without claims."""
    _run(task, lambda: None)


def keyed_round_trips(task: Task) -> None:
    """Keyed loop with two Redis round trips a record."""
    _run(task, lambda: Claims(task, together=False))


def keyed_pipelined(task: Task) -> None:
    """Keyed loop with claims and completions in pipelines."""
    _run(task, lambda: Claims(task, together=True))


def _run(task: Task, claims: Callable[[], Claims | None]) -> None:
    async def main() -> None:
        await Keyed(task, claims()).run()

    uvloop.run(main())
