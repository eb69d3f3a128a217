"""A relay that leads is frozen, or loses its lock: another leads within a lease, and the topic is as it must be."""

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest
from psycopg import OperationalError

from orderflow.core import database, kafka
from orderflow.core.kafka import Headers, Publisher, Report
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import relay as relay_module
from producers import relay_process
from producers.leadership import leading
from producers.relay import Relay
from tests.outbox_flow import OutboxFlow, wait_until
from tests.stacks.interface import Stack

LEASE_SECONDS = 2.0
QUICK = {"ORDERFLOW_RELAY__LEASE_SECONDS": str(LEASE_SECONDS), "ORDERFLOW_RELAY__POLL_SECONDS": "0.2"}
QUEUE = 50


@pytest.fixture
def quick(shop: Settings) -> Settings:
    return shop.model_copy(
        update={"relay": shop.relay.model_copy(update={"lease_seconds": LEASE_SECONDS, "poll_seconds": 0.2})}
    )


@contextmanager
def leads_elsewhere(quick: Settings, taken: threading.Event) -> Iterator[None]:
    """Wait for the lock in a thread, as a second relay does."""
    stop = Stop()

    def wait() -> None:
        with leading(quick, stop) as connection:
            if connection is not None:
                taken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("asks", ["nothing", "and does not read the answer"])
def test_a_leader_that_falls_silent_loses_the_lock(quick: Settings, asks: str) -> None:
    taken = threading.Event()
    with leading(quick, Stop()) as leader, leads_elsewhere(quick, taken):
        assert leader is not None
        if asks != "nothing":
            # More than the sockets' buffers hold: PostgreSQL stands in the middle of its answer.
            leader.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
            leader.pgconn.flush()
        assert taken.wait(60)
        leader.close()


class Clock:
    """A clock that the test moves."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Taking:
    """A sender that takes every record, tells the test, and reports nothing."""

    failed = False

    def __init__(self, told: Callable[[int], None] = lambda _: None) -> None:
        self.sent: list[int] = []
        self._told = told

    def send(self, ticket: int, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        del topic, key, value, headers
        self.sent.append(ticket)
        self._told(len(self.sent))
        return True

    def poll(self, timeout: float) -> list[Report[int]]:
        del timeout
        return []

    def renew(self) -> list[Report[int]]:
        return []


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(relay_module, "clock", clock)
    return clock


def test_a_leader_asks_at_least_every_third_of_its_lease_whatever_it_waits_for(
    quick: Settings, moved: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    flow = OutboxFlow(quick)
    with (
        database.connect(quick.database, "api", autocommit=True) as own,
        database.connect(quick.database, autocommit=True) as watch,
    ):
        relay = Relay(own, Taking(), Metrics(), batch_rows=10, poll_seconds=3_600, lease_seconds=30)

        def asked() -> object:
            return watch.execute(
                "SELECT query_start FROM pg_stat_activity WHERE pid = %s", (own.info.backend_pid,)
            ).fetchone()

        def rung(seconds: float) -> bool:
            waits.append(seconds)
            return False

        monkeypatch.setattr(relay, "_rung", rung)
        relay.turn()
        relay.turn()
        assert 0 < waits[-1] <= 10  # nothing to do
        flow.add(1)
        relay._hungry = True
        relay.turn()
        for _ in range(3):  # a report that does not come
            before = asked()
            moved.now += 10
            relay.turn()
            assert asked() != before


def test_a_leader_that_comes_to_itself_asks_before_it_sends_on(quick: Settings, moved: Clock) -> None:
    flow = OutboxFlow(quick)
    flow.add(5)

    def is_frozen(sent: int) -> None:
        if sent == 2:
            with database.connect(quick.database, autocommit=True) as connection:
                connection.execute("SELECT pg_terminate_backend(%s, 10000)", (own.info.backend_pid,))
            moved.now += LEASE_SECONDS

    sender = Taking(is_frozen)
    with database.connect(quick.database, "api", autocommit=True) as own:
        relay = Relay(own, sender, Metrics(), batch_rows=10, poll_seconds=0.1, lease_seconds=LEASE_SECONDS)
        with pytest.raises(OperationalError):
            relay.turn()
        assert relay.abandon() == 2
    assert len(sender.sent) == 2


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_leader_is_frozen_and_thawed_beside_its_successor(
    shop: Settings, start_role: Callable[..., Popen[bytes]], tmp_path: Path, *, short: bool
) -> None:
    flow = OutboxFlow(shop)
    log = tmp_path / "relay.log"

    def said(sentence: str) -> int:
        return len(re.findall(sentence, log.read_text()))

    def says_more_often(sentence: str, than: int) -> bool:
        return said(sentence) > than

    relays = [start_role("relay", **QUICK)]
    wait_until(flow.leader)
    relays.append(start_role("relay", **QUICK))
    wait_until(lambda: said("another relay leads") == 1)
    with flow.flowing():
        for _ in range(1 if short else 4):
            flow.wait_for_more()
            flow.add(3_000)
            before, lost = flow.leader(), said("does not lead")
            leader, other = relays
            leader.send_signal(signal.SIGSTOP)
            try:
                flow.wait_for_a_leader_other_than(before)
                flow.wait_for_more()
            finally:
                leader.send_signal(signal.SIGCONT)
            wait_until(partial(says_more_often, "does not lead", lost))
            flow.wait_for_more()
            relays = [other, leader]
        # The one that was thawed last is well: it leads when the other is gone.
        relays[0].kill()
        flow.wait_for_more()
    wait_until(lambda: not flow.unpublished())
    flow.check()
    relays[1].send_signal(signal.SIGTERM)
    assert relays[1].wait(30) == 0


def test_a_leader_is_deposed_while_its_queue_is_full(stack: Stack, quick: Settings) -> None:
    flow = OutboxFlow(quick)
    publisher: Publisher[int] = Publisher(
        kafka.producer_config(quick.kafka) | {"queue.buffering.max.messages": QUEUE, "linger.ms": 0}
    )
    stop, metrics = Stop(), Metrics()

    def relay() -> None:
        while not stop:
            relay_process._term(quick, publisher, metrics, stop)

    thread = threading.Thread(target=relay)
    flow.add(4, versions=3)
    thread.start()
    broker = stack.kafka.brokers[0]
    try:
        wait_until(lambda: not flow.unpublished())
        broker.pause()
        try:
            flow.add(2 * QUEUE, versions=3)
            for _ in range(2):
                wait_until(lambda: len(publisher) == QUEUE)
                before, producer = flow.leader(), publisher._producer
                flow.depose()
                flow.wait_for_a_leader_other_than(before)
                assert publisher._producer is not producer
        finally:
            broker.resume()
        wait_until(lambda: not flow.unpublished())
    finally:
        stop.set()
        thread.join()
    flow.check()
