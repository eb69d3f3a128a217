"""How fast the relay publishes the outbox, beside a raw producer in the same run.

    python benchmarks/relay.py [--rows 40000] [--rounds 3] [--json]

Each round publishes the same number of records: by a bare confluent-kafka producer loop (idempotent,
reports served by `poll`), and by the relay from rows that wait in PostgreSQL, which are read, sent,
and marked after their reports. Reported: rows/s, CPU microseconds a row of the relay, PostgreSQL and
Kafka, and what all CPUs of the machine allow at that price. One machine, everything on it; the local
stack's PostgreSQL runs without fsync.

Where a row's time goes (2 cores at a load of 8 to 18, which makes every figure larger; medians of 3 rounds, 4 runs):
own 33-40 us (a raw producer: 19-23), PostgreSQL 34-39, Kafka 41-63 (raw: 7-44). That is 15,000 to 18,000 rows/s of
two cores, so 20,000 are out of reach there. PostgreSQL: about 23 are the mark (a new row version and an entry in each
of three unique indexes, since the column that changes is what the index of pending rows goes by), 10 the pick. Kafka:
the slower the relay is driven, the fewer records a batch has after 5 ms (a linger of 60 ms saved 15 us, and cost each
order as much). Own: what the raw producer has, 3 for reading rows, and headers, ids and reports.
"""

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from orderflow.core import database, kafka, log
from orderflow.core.kafka import Publisher
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import database as tables
from orderflow.ops.provision import topics
from orderflow.ops.stack.layout import Options
from orderflow.ops.stack.stack import LocalStack
from orderflow.testing import order_created
from producers import outbox
from producers.ids import new_id
from producers.relay import Relay
from schemas import codec
from schemas.headers import event_headers

Figures = dict[str, float]


def main() -> None:
    """Publish by both ways, round after round."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=40_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    chosen = arguments.parse_args()
    log.configure("error", "console")
    gc.freeze()  # as the relay's process does
    with ExitStack() as whole:
        folder = Path(whole.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        # This heap also gets the broker its full compiler.
        options = Options(quick_groups=True, durable=False, kafka_heap_mb=1024)
        stack = whole.enter_context(LocalStack.temporary(folder / "stack", options))
        settings = load(stack.environment(), env_file=folder / "none")
        tables.apply(settings)
        topics.apply(settings, ())
        raw(settings, chosen.rows)  # the broker compiles itself
        rounds: dict[str, list[Figures]] = {"raw producer": [], "relay": []}
        for _ in range(chosen.rounds):
            rounds["raw producer"].append(measured(stack, chosen.rows, lambda: raw(settings, chosen.rows)))
            fill(settings, chosen.rows)
            rounds["relay"].append(measured(stack, chosen.rows, lambda: relay(settings)))
    report({way: middle(found) for way, found in rounds.items()}, as_json=chosen.json)


def measured(stack: LocalStack, rows: int, way: Callable[[], None]) -> Figures:
    """Return rows/s, and CPU microseconds a row by process."""

    def cpu() -> dict[str, float]:
        return {
            "own_us": time.process_time(),
            "postgres_us": family_seconds(stack.postgres.daemon.pid),
            "kafka_us": family_seconds(stack.kafka.brokers[0].daemon.pid),
        }

    before, began = cpu(), time.perf_counter()
    way()
    seconds = time.perf_counter() - began
    used = {name: (after - before[name]) * 1e6 / rows for name, after in cpu().items()}
    return {
        "rows_per_s": rows / seconds,
        **used,
        "cpu_limit_rows_per_s": (os.cpu_count() or 1) * 1e6 / sum(used.values()),
    }


def family_seconds(pid: int | None) -> float:
    """Return the CPU seconds of a process and of all it started that still run or have ended."""
    process = psutil.Process(pid)
    seconds = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # then its parent has what it used
            times = one.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def raw(settings: Settings, rows: int) -> None:
    """Produce as many records as there are rows, with the relay's own client settings."""
    producer = Producer(kafka.producer_config(settings.kafka))
    event = order_created()
    value, headers, delivered = codec.encode(event), list[tuple[str, str | bytes | None]](event_headers(event)), [0]

    def on_delivery(error: object, _message: object) -> None:
        assert error is None
        delivered[0] += 1

    for _ in range(rows):
        producer.produce(settings.kafka.source_topic, value, str(new_id()), headers=headers, on_delivery=on_delivery)
        producer.poll(0)
    while delivered[0] < rows:
        producer.poll(0.1)


def fill(settings: Settings, rows: int) -> None:
    """Put rows of different orders into the outbox."""
    event = order_created()
    value = codec.encode(event)
    headers = json.dumps([(name, text.decode()) for name, text in event_headers(event)])
    copy = "COPY api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) FROM STDIN"
    with database.connect(settings.database, "api") as connection, connection.cursor().copy(copy) as into:
        for _ in range(rows):
            order_id = new_id()
            key = str(order_id).encode()
            into.write_row((new_id(), order_id, 1, settings.kafka.source_topic, key, value, headers))


def relay(settings: Settings) -> None:
    """Publish all that waits."""
    publisher: Publisher[int] = Publisher(kafka.producer_config(settings.kafka))
    with (
        database.connect(settings.database, "api", autocommit=True) as own,
        database.connect(settings.database, "api", autocommit=True) as watch,
    ):
        term = Relay(
            own,
            publisher,
            Metrics(),
            batch_rows=settings.relay.batch_rows,
            poll_seconds=settings.relay.poll_seconds,
        )
        look = time.perf_counter()
        while True:
            term.turn()
            if time.perf_counter() > look:
                if not outbox.unpublished(watch, quarantined_only=False, limit=1):
                    term.drain(1)
                    return
                look = time.perf_counter() + 0.02


def middle(found: list[Figures]) -> Figures:
    """Return the median of each figure."""
    return {name: median(one[name] for one in found) for name in found[0]}


def report(figures: dict[str, Figures], *, as_json: bool) -> None:
    """Print the medians and the ratio to the raw producer."""
    raw_rate = figures["raw producer"]["rows_per_s"]
    if as_json:
        print(json.dumps({way: {**one, "of_raw": one["rows_per_s"] / raw_rate} for way, one in figures.items()}))
        return
    table = Table("way", "rows/s", "of raw", "own µs/row", "PostgreSQL µs/row", "Kafka µs/row", "CPUs allow rows/s")
    for way, one in figures.items():
        rate, *used, limit = one.values()
        table.add_row(
            way, f"{rate:,.0f}", f"{rate / raw_rate:.0%}", *(f"{value:.0f}" for value in used), f"{limit:,.0f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
