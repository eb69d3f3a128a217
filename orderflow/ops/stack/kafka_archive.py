"""Writes the archive of Kafka's classes once, by running a broker that is thrown away."""

import contextlib

from orderflow.ops.stack.cache import scratch
from orderflow.ops.stack.kafka import Broker
from orderflow.ops.stack.kafka_java import archive
from orderflow.ops.stack.kafka_ready import coordinators_answer
from orderflow.ops.stack.layout import Layout, Ports
from orderflow.ops.stack.part import READY_SECONDS, wait_for_answer
from orderflow.ops.stack.process import PartFailed
from orderflow.ops.stack.progress import Reporter, Silent
from orderflow.ops.stack.watchdog import Watchdog

# Measured: Java takes 11 s on 2 cores to write it.
_WRITE_SECONDS = 90.0


def ensure_archive(progress: Reporter | None = None) -> None:
    """Write the archive unless it exists (20 to 30 s, once); where that fails, brokers start without it."""
    target = archive()
    if target.exists():
        return
    with contextlib.suppress(OSError, PartFailed), scratch(target.parent) as place:
        if target.exists():  # another process had the lock and wrote it
            return
        (progress or Silent()).step("preparing Kafka for quick starts (once, some 20 s)")
        broker = Broker(place / "kafka", Layout(Ports.free()), 0, record=place / target.name)
        with Watchdog(place):
            try:
                broker.start()
                wait_for_answer(broker.daemon, lambda: coordinators_answer(broker.address), READY_SECONDS)
                broker.daemon.stop(grace=_WRITE_SECONDS)
                (place / target.name).replace(target)
            finally:
                broker.kill()
