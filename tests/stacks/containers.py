"""The parts as containers, from the same images as docker-compose.yml, with the settings of the local stack.

The ports are chosen here, not by the engine, and bound to loopback: a server that was killed comes back where it was.
Only the mail sink is the local one, because tests read what it kept and ask it for refusals.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from docker.errors import DockerException
from requests.exceptions import RequestException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from orderflow.core import clock
from orderflow.ops.stack.kafka_config import server_properties
from orderflow.ops.stack.kafka_jars import KAFKA_VERSION
from orderflow.ops.stack.kafka_ready import coordinators_answer
from orderflow.ops.stack.layout import HOST, Layout, Options, Ports
from orderflow.ops.stack.part import Part
from orderflow.ops.stack.postgres import DATABASE, USER
from orderflow.ops.stack.redis import DATABASES
from orderflow.ops.stack.stack import LocalStack
from orderflow.ops.stack.watchdog import Watchdog

READY_SECONDS = 120.0
PING_SECONDS = 5
# Not protected mode, which would let in nobody from outside the container: the port is on loopback alone.
REDIS = ["redis-server", "--protected-mode", "no", "--appendonly", "yes", "--save", ""]
REDIS += ["--maxmemory-policy", "noeviction", "--databases", str(DATABASES)]
POSTGRES = ["postgres", "-c", "max_connections=200", "-c", "fsync=off", "-c", "full_page_writes=off"]


class NoContainers(Exception):
    """Raised when no engine answers here, or when it does not bring the parts up."""


def find_engine() -> None:
    """Ask the engine whether it is there. Raises `NoContainers`."""
    try:
        engine = DockerClient(timeout=PING_SECONDS)
        with contextlib.closing(engine.client):
            engine.client.ping()
    except (DockerException, RequestException, OSError) as error:
        raise NoContainers(f"no Docker engine answers: {error}") from None
    if engine.host() not in {"localhost", HOST}:
        raise NoContainers(
            f"the Docker engine is on {engine.host()}: ports on its loopback cannot be reached from here"
        )


class KafkaContainer(DockerContainer):
    """One broker from `apache/kafka`, which testcontainers' own class refuses."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(f"apache/kafka:{KAFKA_VERSION}")
        (port,) = layout.ports.kafka
        lines = server_properties(layout, 1, Path("/var/lib/kafka/data")).splitlines()
        properties = dict(line.split("=", 1) for line in lines)
        # The same port inside as outside, so that the broker, too, finds itself where it tells clients to go.
        listeners = {"PLAINTEXT": f":{port}", "CONTROLLER": f"{HOST}:{layout.ports.controllers[0]}"}
        properties["listeners"] = ",".join(f"{name}://{address}" for name, address in listeners.items())
        # The image's own spelling: `log.dirs` is KAFKA_LOG_DIRS.
        self.with_envs(**{f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()})
        self.with_envs(
            CLUSTER_ID=layout.cluster_id,
            KAFKA_HEAP_OPTS=f"-Xmx{layout.options.kafka_heap_mb}m",
            KAFKA_LOG4J_ROOT_LOGLEVEL="WARN",
        )
        publish(self, port, port)


def publish(container: DockerContainer, inside: int, outside: int) -> None:
    """Bind a port of the container to one of this machine's loopback; testcontainers' own methods bind to all."""
    container.ports.clear()
    # Handed to the engine's client as it is, which takes an address and a port.
    container.ports[f"{inside}/tcp"] = (HOST, outside)  # type: ignore[assignment]


class Contained:
    """One server in a container, with the verbs of a local part; its questions are asked by that part."""

    def __init__(self, container: DockerContainer, answer: Callable[[], object]) -> None:
        self._container = container
        self._answer = answer
        self._made = False

    def start(self) -> None:
        """Make or start the container and wait for a real answer. Raises `NoContainers` with the end of its log."""
        if self._made:
            self._container.get_wrapped_container().start()
        else:
            self._made = True
            self._container.start()
        deadline = clock.monotonic() + READY_SECONDS
        while not self._answer():
            self._container.reload()
            if self._container.status == "exited" or clock.monotonic() > deadline:
                said = self._container.get_wrapped_container().logs(tail=8).decode(errors="replace")
                raise NoContainers(f"{self._container.image} ({self._container.status}) does not answer:\n{said}")
            time.sleep(0.05)

    def stop(self) -> None:
        """`docker stop`."""
        self._container.get_wrapped_container().stop(timeout=10)

    def kill(self) -> None:
        """`docker kill`, and wait until it is gone; no error when it does not run."""
        self._container.reload()
        if self._container.status in {"running", "paused"}:
            self._container.get_wrapped_container().kill()
            self._container.wait()

    def pause(self) -> None:
        """`docker pause`."""
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """`docker unpause`."""
        self._container.get_wrapped_container().unpause()

    def remove(self) -> None:
        """Remove the container and what it stored."""
        if self._made:
            self._container.stop()


class ContainedBroker(Contained):
    def __init__(self, layout: Layout, part: Part) -> None:
        self.address = f"{HOST}:{part.port}"
        super().__init__(KafkaContainer(layout), lambda: part.answer() and coordinators_answer(self.address))
        # One broker is the whole cluster.
        self.brokers = [self]
        self.bootstrap_servers = self.address


class ContainedRedis(Contained):
    def __init__(self, stack: LocalStack) -> None:
        part = stack.redis
        self.url, self.url_of = part.url, part.url_of
        # testcontainers' own classes for Redis and PostgreSQL wait at an address of their choice: not at this one.
        container = DockerContainer("redis:8").with_command(REDIS)
        publish(container, 6379, part.port)
        super().__init__(container, part.answer)


class ContainedPostgres(Contained):
    def __init__(self, stack: LocalStack) -> None:
        part = stack.postgres
        self.dsn, self.dsn_of = part.dsn, part.dsn_of
        container = DockerContainer("postgres:18").with_command(POSTGRES)
        container.with_envs(POSTGRES_USER=USER, POSTGRES_PASSWORD=stack.layout.password, POSTGRES_DB=DATABASE)
        publish(container, 5432, part.port)
        super().__init__(container, part.answer)


class ContainerStack:
    """A context manager: on leaving, containers and what they stored are removed."""

    def __init__(self, folder: Path) -> None:
        # Its addresses, its questions and its mail sink; no other process of it is started.
        here = LocalStack(folder, Layout(Ports.free(), Options(quick_groups=True, durable=False)))
        self.kafka = ContainedBroker(here.layout, here.kafka.brokers[0])
        self.redis = ContainedRedis(here)
        self.postgres = ContainedPostgres(here)
        self.mail = here.mail
        self.environment = here.environment
        self._watchdog = Watchdog(folder)

    def __enter__(self) -> Self:
        """Start everything. Raises `NoContainers`."""
        try:
            self._watchdog.watch()
            self.mail.start()
            for part in (self.kafka, self.redis, self.postgres):
                part.start()
        except (DockerException, RequestException, OSError) as error:
            self.__exit__(None, None, None)
            raise NoContainers(f"the Docker engine does not start the parts: {error}") from None
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in (self.kafka, self.redis, self.postgres):
            part.remove()
        self.mail.stop()
        self._watchdog.release()
