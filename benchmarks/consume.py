"""How fast a group consumes, beside the raw client in the same run.

    python benchmarks/consume.py [--records 30000] [--rounds 2] [--json]

Each round reads the same log with: the raw client (`consume(500)`, a commit a second); the raw client
with our decoding; a worker whose handler does nothing, with the full claim protocol; and the audit
group with its rows in PostgreSQL. Reported: records/s, CPU seconds of this process per 100,000
records, and the ratio to the raw client of the same round. One machine, everything on it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from consumers.audit.group import group as audit
from consumers.runtime.group import ConsumerGroup
from orderflow.core import kafka, log
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import database
from orderflow.ops.stack.stack import LocalStack
from orderflow.testing import GroupHarness, make_group, order_created
from schemas import codec
from schemas.events import OrderCreated


def main() -> None:
    """Fill a topic once, then read it again and again."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=30_000)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--json", action="store_true")
    chosen = arguments.parse_args()
    log.configure("error", "console")
    with ExitStack() as whole:
        folder = Path(whole.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack = whole.enter_context(LocalStack.temporary(folder / "stack"))
        settings = load(stack.environment(), env_file=folder / "none")
        database.apply(settings)
        fill(settings, chosen.records)
        ways: dict[str, Callable[[], None]] = {
            "raw client": lambda: raw(settings, chosen.records),
            "raw client + decode": lambda: raw(settings, chosen.records, codec.decode),
            "worker, no-op handler": lambda: worker(settings, no_op(), chosen.records),
            "worker, no-op batch": lambda: worker(settings, no_op_batch(), chosen.records),
            "audit group": lambda: audit_group(settings, chosen.records),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(chosen.rounds):
            for name, way in ways.items():
                figures[name].append(measured(way, chosen.records))
    report(figures, chosen.records, as_json=chosen.json)


def measured(way: Callable[[], None], records: int) -> tuple[float, float]:
    """Return records/s and CPU seconds per 100,000 records."""
    began, cpu = time.perf_counter(), time.process_time()
    way()
    return records / (time.perf_counter() - began), (time.process_time() - cpu) * 100_000 / records


def fill(settings: Settings, records: int) -> None:
    """Put orders on the source topic."""
    with GroupHarness(make_group(), settings, workers=0) as harness:
        template = order_created()
        harness.publish(*(order_created(lines=template.lines) for _ in range(records)))


def raw(settings: Settings, records: int, read: Callable[[bytes], object] = len) -> None:
    """Read the topic once with the raw client, committing once a second."""
    config = kafka.consumer_config(settings.kafka, "benchmark.raw", max_poll_seconds=60)
    consumer = Consumer(config)
    consumer.assign([TopicPartition(settings.kafka.source_topic, n, 0) for n in range(settings.kafka.partitions)])
    seen, commit_at = 0, time.monotonic() + 1
    while seen < records:
        for message in consumer.consume(500, 0.5):
            read(message.value() or b"")
            seen += 1
        if time.monotonic() > commit_at:
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
            commit_at += 1
    consumer.close()


def no_op() -> ConsumerGroup:
    """Return a group whose handler does nothing."""
    group = make_group()
    group.on(OrderCreated)(lambda _event, _delivery, _deps: None)
    return group


def no_op_batch() -> ConsumerGroup:
    """Return a group whose batch handler does nothing."""
    group = make_group(ordering="none")
    group.on_batch(OrderCreated)(lambda _batch, _deps: None)
    return group


def worker(settings: Settings, group: ConsumerGroup, records: int) -> None:
    """Let a worker of a new group read the topic from its start."""
    with GroupHarness(group, settings) as harness:
        harness.wait_until(lambda: sum(harness.committed().values()) >= records, "the whole topic", 300)


def audit_group(settings: Settings, records: int) -> None:
    """Let the audit group record the topic into empty tables, under a name of its own."""
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        connection.execute("TRUNCATE audit.rows")
    fresh: Any = make_group(ordering=audit.ordering, setup=audit.setup)
    fresh.batch_handler, fresh.types = audit.batch_handler, audit.types
    worker(settings, fresh, records)


def report(figures: dict[str, list[tuple[float, float]]], records: int, *, as_json: bool) -> None:
    """Print the medians; the ratio is to the raw client of the same round."""
    rows = [
        {
            "way": name,
            "records_per_second": round(median(rate for rate, _ in rounds)),
            "cpu_seconds_per_100k": round(median(cpu for _, cpu in rounds), 2),
            "ratio_to_raw": round(
                median(r / raw for (r, _), (raw, _) in zip(rounds, figures["raw client"], strict=True)), 3
            ),
        }
        for name, rounds in figures.items()
    ]
    if as_json:
        Console().print_json(json.dumps({"records": records, "ways": rows}))
        return
    table = Table("way", "records/s", "CPU s / 100,000", "ratio to raw", title=f"consuming {records:,} orders")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
