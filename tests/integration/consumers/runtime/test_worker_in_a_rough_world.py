"""Workers that come and go, and a Redis whose answers get lost: each event still runs exactly as often as it should."""

import contextlib
import random
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from consumers.runtime.group import ConsumerGroup, Delivery, Outcome
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Outage, Reject, Retry
from schemas import headers as names
from schemas.events import Event, OrderCreated

TIERS = (1, 2)
KEYS = 40


class Script:
    """What becomes of each event, by its number: `failures` before the first success, None for never."""

    FATES: ClassVar[list[tuple[type[Exception], int | None]]] = [
        *[(Retry, 0)] * 12,
        (Retry, 1),
        (Retry, 2),
        (ValueError, 1),
        (Outage, 2),
        (Retry, None),
        (Reject, None),
    ]

    def __init__(self, number: int) -> None:
        orders = [order_created() for _ in range(KEYS)]
        self.events = [order_created(order_id=orders[n % KEYS].order_id) for n in range(number)]
        self._number = {event.event_id: n for n, event in enumerate(self.events)}
        self._lock = threading.Lock()
        self.runs: Counter[int] = Counter()
        self.running: set[int] = set()
        self.together: list[int] = []
        self.done: Counter[int] = Counter()

    def run(self, event: Event) -> None:
        n = self._number[event.event_id]
        with self._lock:
            if n in self.running:
                self.together.append(n)
            self.running.add(n)
            self.runs[n] += 1
            run = self.runs[n]
        try:
            threading.Event().wait(0.005)
            error, failures = self.FATES[n % len(self.FATES)]
            if failures is None or run <= failures:
                raise error("as the script says")
            with self._lock:
                self.done[n] += 1
        finally:
            with self._lock:
                self.running.discard(n)

    def expected_runs(self, n: int) -> int:
        error, failures = self.FATES[n % len(self.FATES)]
        if failures is None:
            return 1 if error is Reject else 1 + len(TIERS)
        return failures + 1

    def expected_dead(self) -> set[str]:
        return {str(e.event_id) for n, e in enumerate(self.events) if self.FATES[n % len(self.FATES)][1] is None}

    def check(self, harness: GroupHarness) -> None:
        assert self.together == []
        assert dict(self.runs) == {n: self.expected_runs(n) for n in range(len(self.events))}
        letters = [letter.header(names.CE_ID) for letter in harness.dead_letters()]
        assert sorted(map(str, letters)) == sorted(self.expected_dead())
        assert set(self.done.values()) == {1}
        assert len(self.done) == len(self.events) - len(letters)
        assert harness.committed() == harness.ends()


def singly(script: Script) -> ConsumerGroup:
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        script.run(event)

    return group


@pytest.fixture
def rough(settings: Settings) -> Settings:
    """Settings with three partitions, quick tiers, and bounds so low that partitions are paused all the time."""
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})
    return tuned(few, retry_seconds=TIERS, commit_seconds=0.2, held_records=20, batch_records=10, slots=8)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_workers_that_come_and_go_in_good_order_run_nothing_twice(rough: Settings, protocol: str) -> None:
    script = Script(360)
    settings = rough.model_copy(update={"kafka": rough.kafka.model_copy(update={"group_protocol": protocol})})
    with GroupHarness(singly(script), settings, workers=2) as harness:
        for turn in range(6):
            harness.publish(*script.events[turn * 60 : (turn + 1) * 60])
            runs = sum(script.runs.values())
            harness.wait_until(lambda runs=runs: sum(script.runs.values()) > runs + 20, "work to flow", 90)  # type: ignore[misc]
            harness.start_worker()
            harness.workers[turn].stop()
        harness.wait_drained(120)
        script.check(harness)


def test_a_batch_group_whose_workers_come_and_go_loses_nothing(rough: Settings) -> None:
    events = [order_created() for _ in range(400)]
    done: Counter[str] = Counter()
    lock = threading.Lock()
    group = make_group()

    @group.on_batch(OrderCreated)
    def handle(batch: list[tuple[Event, Delivery]], _deps: Any) -> list[Outcome]:
        threading.Event().wait(0.01)
        with lock:
            done.update(str(event.event_id) for event, _ in batch)
        return [Outcome.PROCESSED] * len(batch)

    with GroupHarness(group, rough, workers=2) as harness:
        for turn in range(4):
            harness.publish(*events[turn * 100 : (turn + 1) * 100])
            harness.start_worker()
            harness.workers[turn].stop()
        harness.wait_drained(120)
        assert harness.dead_letters() == []
    assert done == Counter(str(event.event_id) for event in events)


class _Lossy(socketserver.BaseRequestHandler):
    """Passes requests on to Redis; now and then the answer is thrown away and the connection closed."""

    upstream: tuple[str, int]
    dice: random.Random
    chance: float
    losses: list[int]

    def handle(self) -> None:
        with socket.create_connection(self.upstream) as server:
            while request := self._received(self.request):
                server.sendall(request)
                answer = self._received(server)
                if self.dice.random() < self.chance:
                    self.losses.append(len(answer))
                    return
                self.request.sendall(answer)

    @staticmethod
    def _received(side: socket.socket) -> bytes:
        with contextlib.suppress(OSError):
            return side.recv(1 << 20)
        return b""


@pytest.fixture
def lossy_redis(rough: Settings) -> Iterator[tuple[str, list[int], type[_Lossy]]]:
    """A way to the test's Redis on which answers get lost: its URL, what was lost, and the handler to tune."""
    where, _, database = rough.redis.url.get_secret_value().removeprefix("redis://").partition("/")
    host, _, port = where.partition(":")

    class Handler(_Lossy):
        upstream = (host, int(port))
        dice = random.Random(7)
        chance = 0.0
        losses: list[int] = []  # noqa: RUF012 - one per test

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/{database}", Handler.losses, Handler
        server.shutdown()
        thread.join(5)


@pytest.mark.timeout(240)
def test_answers_that_get_lost_on_the_way_change_nothing(
    rough: Settings, lossy_redis: tuple[str, list[int], type[_Lossy]]
) -> None:
    url, losses, handler = lossy_redis
    script = Script(120)
    settings = rough.model_copy(update={"redis": rough.redis.model_validate({"url": url})})
    with GroupHarness(singly(script), settings) as harness:
        harness.publish(*script.events[:10])
        harness.wait_until(lambda: len(script.runs) > 0, "the worker to have started", 90)
        handler.chance = 0.05
        harness.publish(*script.events[10:])
        harness.wait_drained(150)
        script.check(harness)
    assert len(losses) >= 5
