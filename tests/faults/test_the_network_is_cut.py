"""The way between a worker and one of its servers is cut for seconds, while the server itself is well.

What must come out: nothing is lost, nothing is doubled, no offset goes back, and lag returns to zero by itself.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.runtime.group import ConsumerGroup, Delivery
from orderflow.core.settings import Settings
from orderflow.ops.stack.kafka import Broker
from orderflow.ops.stack.kafka_ready import coordinators_answer
from orderflow.ops.stack.layout import HOST, Layout, Options, Ports, free_ports
from orderflow.ops.stack.part import wait_for_answer
from orderflow.ops.stack.process import Command
from orderflow.testing import GroupHarness, WorkerThread, make_group, tuned
from schemas.events import OrderCreated
from tests.group_flow import GroupWatch, OrderFlow, quick_session, with_protocol
from tests.outbox_flow import wait_until
from tests.tcp_proxy import TcpProxy

PARTITIONS = 3
WHOLE = pytest.mark.long(whole=True)
CUT_ORDERS = 200  # published while the way is cut: longer than a lease


class Runs:
    """Counts how often each event was handled."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.group: ConsumerGroup = make_group()

        @self.group.on(OrderCreated)
        def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
            # So that some runs end while the way is cut.
            threading.Event().wait(0.1)
            with self._lock:
                self.of[str(event.event_id)] += 1

    def wait_for_standstill(self) -> int:
        """Wait until nothing has been handled for half a second; return how much was."""
        handled = -1
        while handled != sum(self.of.values()):
            handled = sum(self.of.values())
            threading.Event().wait(0.5)
        return handled


@pytest.fixture
def three_partitions(settings: Settings) -> Settings:
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    return tuned(few, retry_seconds=(1,), lease_seconds=2.0, commit_seconds=0.1)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cut", ["silence", pytest.param("reset", marks=WHOLE)])
def test_between_a_worker_and_redis(three_partitions: Settings, cut: str, *, short: bool) -> None:
    where, _, number = three_partitions.redis.url.get_secret_value().removeprefix("redis://").partition("/")
    host, _, port = where.partition(":")
    runs = Runs()
    with TcpProxy(host, int(port)) as way:
        redis = {"url": f"redis://127.0.0.1:{way.port}/{number}", "timeout_seconds": 0.5}
        cuttable = three_partitions.model_copy(update={"redis": three_partitions.redis.model_validate(redis)})
        with (
            GroupHarness(runs.group, cuttable) as harness,
            GroupWatch(cuttable, harness.topics) as watch,
            OrderFlow(cuttable) as flow,
        ):
            watch.wait_all_move(60)
            for _ in range(1 if short else 4):
                {"silence": way.silence, "reset": way.reset}[cut]()
                handled = runs.wait_for_standstill()  # without claims nothing starts
                flow.wait_for_more(CUT_ORDERS)
                assert handled == sum(runs.of.values())
                way.heal()
                watch.wait_all_move(60)
            flow.stop()
            harness.wait_drained(90)
            assert harness.dead_letters() == []
            assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
    assert set(runs.of) == set(flow.acknowledged)
    assert set(runs.of.values()) == {1}


class CuttableBroker(Broker):
    """A broker with a second listener, which it advertises at a port that is not its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Layout(Ports.free(), Options(quick_groups=True, durable=False)), 0)
        (self.behind,) = free_ports(1)
        self.advertised = 0

    def prepare(self) -> Command:
        """Add the second listener to the properties: of two lines of one name the last one counts."""
        command = super().prepare()
        own, controller = (f"{HOST}:{port}" for port in self.ports)
        with (self.folder / "server.properties").open("a", encoding="utf-8") as properties:
            properties.write(
                f"listeners=PLAINTEXT://{own},CUTTABLE://{HOST}:{self.behind},CONTROLLER://{controller}\n"
                f"advertised.listeners=PLAINTEXT://{own},CUTTABLE://127.0.0.1:{self.advertised}\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CUTTABLE:PLAINTEXT\n"
            )
        return command


@pytest.fixture(scope="module")
def cuttable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CuttableBroker, TcpProxy]]:
    """A broker of this module's own, and the only way to its second listener."""
    broker = CuttableBroker(tmp_path_factory.mktemp("cuttable"))
    with TcpProxy(HOST, broker.behind) as way:
        broker.advertised = way.port
        try:
            broker.start()
            wait_for_answer(broker.daemon, lambda: coordinators_answer(broker.address), 120)
            yield broker, way
        finally:
            broker.kill()


@pytest.mark.long(whole=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("cut", ["silence", "reset"])
def test_between_a_worker_and_its_broker_until_another_took_over(
    three_partitions: Settings, cuttable_broker: tuple[CuttableBroker, TcpProxy], cut: str, protocol: str
) -> None:
    broker, way = cuttable_broker
    runs = Runs()

    def at(address: str) -> Settings:
        kafka = three_partitions.kafka.model_copy(update={"bootstrap_servers": address})
        return with_protocol(three_partitions.model_copy(update={"kafka": kafka}), protocol)

    direct = at(broker.address)
    with GroupHarness(runs.group, direct, workers=0) as harness:
        quick_session(direct, harness.topics, 2.0)
        cut_off = WorkerThread(runs.group, at(f"127.0.0.1:{way.port}"))
        harness.workers.append(cut_off)
        with GroupWatch(direct, harness.topics) as watch, OrderFlow(direct, pause_seconds=0.02) as flow:
            watch.wait_all_move(60)
            (lost,) = watch.owners()
            {"silence": way.silence, "reset": way.reset}[cut]()
            harness.start_worker()
            wait_until(lambda: lost not in watch.owners() and watch.is_shared_by(1), 60)
            watch.wait_all_move(60)
            way.heal()
            watch.wait_shared_by(2, 60)
            watch.wait_all_move(60)
            flow.stop()
            harness.wait_drained(90)
            assert cut_off.alive
            assert harness.dead_letters() == []
            assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
            assert harness.committed() == harness.ends()
    assert set(runs.of) == set(flow.acknowledged)
    assert set(runs.of.values()) == {1}


@pytest.mark.long(whole=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cut", ["silence", "reset"])
def test_between_the_only_worker_and_its_broker(
    three_partitions: Settings, cuttable_broker: tuple[CuttableBroker, TcpProxy], cut: str
) -> None:
    broker, way = cuttable_broker
    runs = Runs()
    kafka = three_partitions.kafka.model_copy(update={"bootstrap_servers": broker.address})
    direct = three_partitions.model_copy(update={"kafka": kafka})
    cuttable = kafka.model_copy(update={"bootstrap_servers": f"127.0.0.1:{way.port}"})
    with GroupHarness(runs.group, direct, workers=0) as harness:
        harness.workers.append(WorkerThread(runs.group, direct.model_copy(update={"kafka": cuttable})))
        with GroupWatch(direct, harness.topics) as watch, OrderFlow(direct) as flow:
            watch.wait_all_move(60)
            for _ in range(4):
                {"silence": way.silence, "reset": way.reset}[cut]()
                handled = runs.wait_for_standstill()
                flow.wait_for_more(CUT_ORDERS)
                assert handled == sum(runs.of.values())
                way.heal()
                watch.wait_all_move(60)
            flow.stop()
            harness.wait_drained(90)
            assert harness.dead_letters() == []
            assert harness.committed() == harness.ends()
    assert set(runs.of) == set(flow.acknowledged)
    assert set(runs.of.values()) == {1}
