"""A whole shop on this machine, and everything that can be done to it."""

import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from consumers.inventory import stock
from orderflow.core.settings import Settings, load
from orderflow.ops.provision.provision import provision
from orderflow.ops.stack.kafka import Broker, Kafka
from orderflow.ops.stack.kafka_ready import coordinators_answer
from orderflow.ops.stack.layout import HOST, Layout, free_ports
from orderflow.ops.stack.part import READY_SECONDS, wait_for_answer
from orderflow.ops.stack.process import Command
from orderflow.ops.stack.stack import LocalStack
from producers import auth
from tests.chaos import trial
from tests.chaos.load import ON_HAND, Customers
from tests.chaos.proxy import Network, Proxy
from tests.chaos.roles import Roles
from tests.checker.facts import Fault

GROUPS = ("email", "inventory", "audit", trial.NAME)
SIDES = ("LEFT", "RIGHT")
SESSION_MS = 2_500
API_VERSIONS = 18
ASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How big the shop is, and how quick."""

    workers: int = 2
    relays: int = 2
    partitions: int = 4
    lease: float = 4.0
    tiers: tuple[int, ...] = (1, 2, 4)


class ProxiedBroker(Broker):
    """A broker with one more listener for each side of the workers, advertised as that side's proxy."""

    def __init__(self, folder: Path, layout: Layout, listeners: dict[str, tuple[int, int]]) -> None:
        super().__init__(folder, layout, 0)
        self._listeners = listeners

    def prepare(self) -> Command:
        command = super().prepare()
        path = self.folder / "server.properties"
        lines = dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines())
        for name, (port, proxied) in self._listeners.items():
            lines["listeners"] += f",{name}://{HOST}:{port}"
            lines["advertised.listeners"] += f",{name}://{HOST}:{proxied}"
            lines["listener.security.protocol.map"] += f",{name}:PLAINTEXT"
        # Below the lease, so that partitions arrive while their dead owner's claims still stand.
        lines["group.consumer.session.timeout.ms"] = str(SESSION_MS)
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
        return command

    def answer(self) -> str | None:
        """Ask which requests it knows, without a client: those that are dropped while a broker dies may end us too."""
        asked = struct.pack(">hhih", API_VERSIONS, 0, 1, -1)
        try:
            with socket.create_connection((HOST, self.port), timeout=ASK_SECONDS) as connection:
                connection.sendall(struct.pack(">i", len(asked)) + asked)
                return "Kafka" if connection.recv(4) else None
        except OSError:
            return None


class ProxiedKafka(Kafka):
    """That broker as the stack's Kafka."""

    def __init__(self, state_dir: Path, layout: Layout, listeners: dict[str, tuple[int, int]]) -> None:
        super().__init__(state_dir, layout)
        self.brokers = [ProxiedBroker(state_dir / "kafka-1", layout, listeners)]

    def start(self, ready_seconds: float = READY_SECONDS) -> None:
        (broker,) = self.brokers
        known = (broker.folder / "data" / "__consumer_offsets-0").exists()
        broker.start(ready_seconds)
        if not known:
            wait_for_answer(broker.daemon, lambda: coordinators_answer(self.bootstrap_servers), ready_seconds)


class World:
    """The shop. `faults` is what was really done, with its real times."""

    def __init__(self, folder: Path, shape: Shape, seed: int) -> None:
        self.folder = folder
        self.shape = shape
        self.faults: list[Fault] = []
        # Handlers in threads with an even seed, in an event loop with an odd one.
        self.specs = {group: group for group in GROUPS} | {trial.NAME: trial.SPECS[seed % 2]}
        self.customers = Customers.of(seed)
        self.stack = LocalStack.temporary(folder / "state")
        self.roles = Roles(folder / "state" / "roles", self.note)
        self.settings: Settings
        self.api_key = ""
        self.api_port = free_ports(1)[0]

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start everything; end it in whatever order, and remove what it stored."""
        with ExitStack() as whole:
            self._network = whole.enter_context(Network())
            self._proxies()
            whole.enter_context(self.stack)
            self._provision()
            self._people()
            # What is thrown away needs no end in good order, which takes a broker seconds.
            whole.callback(self.stack.kafka.kill)
            whole.enter_context(self.roles.watched())
            for role in self.roles.all:
                if not role.spare:
                    role.start()
            yield

    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of all roles and parts."""
        folder.mkdir()
        for log in self.stack.state_dir.rglob("log"):
            if log.is_file():
                shutil.copy(log, folder / f"{log.parent.name}.log")

    def note(self, fault: Fault) -> None:
        self.faults.append(fault)

    # What the driver sees for itself, past all proxies.

    @property
    def dsn(self) -> str:
        return self.stack.postgres.dsn

    def group_id(self, group: str) -> str:
        return f"{self.settings.kafka.source_topic}.{group}"

    def tiers(self, group: str) -> dict[str, float]:
        return {f"{self.group_id(group)}.retry.{seconds}s": float(seconds) for seconds in self.shape.tiers}

    def subscribed(self, group: str) -> list[str]:
        return [self.settings.kafka.source_topic, *self.tiers(group), f"{self.group_id(group)}.replay"]

    # How it is made.

    def _proxies(self) -> None:
        ports = iter(free_ports(4 + 3 + len(GROUPS) * (self.shape.workers + 1)))
        listeners: dict[str, tuple[int, int]] = {}
        self.kafka_sides: dict[str, Proxy] = {}
        for side in SIDES:
            there = next(ports)
            self.kafka_sides[side] = Proxy(self._network, next(ports), there)
            listeners[side] = (there, self.kafka_sides[side].port)
        self.stack.kafka = ProxiedKafka(self.stack.state_dir, self.stack.layout, listeners)
        self.postgres_proxy = Proxy(self._network, next(ports), self.stack.postgres.port)
        self.mail_proxy = Proxy(self._network, next(ports), self.stack.mail.port)
        self.redis_proxies = {
            f"{group}-{number}": Proxy(self._network, next(ports), self.stack.redis.port)
            for group in GROUPS
            for number in range(1, self.shape.workers + 2)
        }

    def _provision(self) -> None:
        shape = self.shape
        common = self.stack.environment() | {
            "ORDERFLOW_GROUPS": ",".join(self.specs.values()),
            "ORDERFLOW_KAFKA__PARTITIONS": str(shape.partitions),
            "ORDERFLOW_WORKER__RETRY_SECONDS": ",".join(map(str, shape.tiers)),
            "ORDERFLOW_WORKER__LEASE_SECONDS": str(shape.lease),
            "ORDERFLOW_WORKER__SLOTS": "8",
            "ORDERFLOW_WORKER__COMMIT_SECONDS": "0.5",
            "ORDERFLOW_WORKER__REVOKE_BUDGET_SECONDS": "3",
            "ORDERFLOW_RELAY__POLL_SECONDS": "0.5",
            "ORDERFLOW_RELAY__LEASE_SECONDS": str(shape.lease),
            "ORDERFLOW_SMTP__TIMEOUT_SECONDS": "3",
            "ORDERFLOW_API__PORT": str(self.api_port),
            "ORDERFLOW_API__ACCESS_LOG": "false",
            "ORDERFLOW_STATE_DIR": str(self.folder),
        }
        self.settings = load(common, env_file=self.folder / "none")
        provision(self.settings)
        self.roles.add("api", "api", ("api",), common, spare=False)
        for number in range(1, shape.relays + 1):
            self.roles.add(f"relay-{number}", "relay", ("relay",), common, spare=False)
        for group, spec in self.specs.items():
            for number in range(1, shape.workers + 2):
                name = f"{group}-{number}"
                mine = common | {
                    "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": f"{HOST}:{self.kafka_sides[_side(number)].port}",
                    "ORDERFLOW_REDIS__URL": f"redis://{HOST}:{self.redis_proxies[name].port}/0",
                    "ORDERFLOW_DATABASE__DSN": self.dsn.replace(
                        f":{self.stack.postgres.port}/", f":{self.postgres_proxy.port}/"
                    ),
                    "ORDERFLOW_SMTP__PORT": str(self.mail_proxy.port),
                }
                verb = ("worker", spec)
                self.roles.add(name, "worker", verb, mine, group=group, spare=number > shape.workers)

    def _people(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(trial.TABLES)
            stock.load(connection, ON_HAND)
            self.customers.store(connection)
            self.api_key = auth.new_key(connection, "checkout")

    def heal(self) -> None:
        """Make sure that everything runs and nothing is cut; for the end."""
        for proxy in (*self.kafka_sides.values(), *self.redis_proxies.values(), self.postgres_proxy, self.mail_proxy):
            proxy.mend()
        for part in (self.stack.redis, self.stack.postgres, self.stack.mail):
            part.resume()
            part.start()
        self.stack.kafka.resume()
        self.stack.kafka.start()
        for role in self.roles.all:
            role.daemon.resume()
            if not role.spare:
                role.start()


def _side(number: int) -> str:
    """The first workers are on one side, the second ones on the other."""
    return SIDES[number % len(SIDES)]
