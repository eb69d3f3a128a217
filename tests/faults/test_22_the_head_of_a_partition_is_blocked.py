"""The first record of a partition is blocked while polling goes on: memory is bounded, and freed in a revoke."""

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import free_ports
from orderflow.testing import GroupHarness, order_created, tuned
from schemas import codec
from schemas import headers as names
from schemas.events import OrderCreated
from schemas.headers import Headers, event_headers
from tests.faults.worker_lives import Effects, Life, notes

BLOCKED, FLOWING = (0, 1, 2), 3
HELD = 100
MOST_HELD = 2 * HELD  # what one read brings may pass the bound
UNKNOWN_SCHEMA = (99_999).to_bytes(5, "big")
LARGE = {f"ARTICLE-{number:03}": 1 for number in range(200)}
RSS_BYTES = 150_000_000


def raw(event: OrderCreated, key: bytes, value: bytes | None = None) -> tuple[bytes, bytes, Headers]:
    return key, codec.encode(event) if value is None else value, [*event_headers(event)]


@dataclass
class Gauges:
    """A worker's gauges, read over HTTP; none was ever negative."""

    port: int
    lowest: float = 0.0
    last: dict[str, float] = field(default_factory=dict)

    def held(self) -> float:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line.startswith("orderflow_consumer_"))
        self.last = {name: float(value) for name, _, value in pairs}
        self.lowest = min([self.lowest, *self.last.values()])
        return sum(value for name, value in self.last.items() if name.startswith("orderflow_consumer_held_records"))


def backlog(number: int) -> Iterator[OrderCreated]:
    lines = order_created(LARGE).lines
    return (order_created(lines=lines) for _ in range(number))


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_memory_is_bounded_and_what_is_held_goes_with_its_partition(
    settings: Settings, tmp_path: Path, *, short: bool
) -> None:
    behind, seconds = (300, 4.0) if short else (8_000, 600.0)
    four = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 4})})
    chosen = tuned(four, retry_seconds=(1,), held_records=HELD, commit_seconds=0.2)
    journal = tmp_path / "journal.jsonl"
    group = Effects(f"k{secrets.token_hex(4)}", journal)
    first, second = (Gauges(port) for port in free_ports(2))
    expected: list[str] = []
    pace = threading.Event()

    def life(gauges: Gauges) -> Life:
        return Life(tuned(chosen, metrics_port=gauges.port), group)

    with GroupHarness(group.group(), chosen, workers=0) as harness:

        def one_flows() -> None:
            event = order_created()
            expected.append(str(event.event_id))
            harness.publish_raw([raw(event, b"flowing")], partition=FLOWING)
            harness.wait_until(lambda: bool(notes(journal, "effect", event=expected[-1])), "the others to flow", 60)

        with life(first).living(tmp_path) as worker:
            one_flows()
            process = psutil.Process(worker.pid)
            before = process.memory_info().rss
            for partition in BLOCKED:
                key = b"blocked-%d" % partition
                # A version that no worker knows yet: it waits for a deployment, and its key with it.
                harness.publish_raw([raw(order_created(), key, UNKNOWN_SCHEMA + b"newer")], partition=partition)
                events = list(backlog(behind))
                expected += [str(event.event_id) for event in events]
                harness.publish_raw((raw(event, key) for event in events), partition=partition)
            harness.wait_until(lambda: first.held() >= len(BLOCKED) * HELD, "the partitions to be full", 60)
            until = clock.monotonic() + seconds
            while clock.monotonic() < until:
                one_flows()
                assert len(BLOCKED) * HELD <= first.held() <= len(BLOCKED) * MOST_HELD + 1
                assert process.memory_info().rss - before < RSS_BYTES
                pace.wait(0.1)
            assert all(harness.committed().get(partition, 0) == 0 for partition in BLOCKED)

            with life(second).living(tmp_path) as other:
                full = first.held()
                # Two partitions go: at least one that was full.
                harness.wait_until(lambda: first.held() <= full - HELD, "the first to let go of what it held", 60)
                harness.wait_until(lambda: _serving(second) and second.held() >= HELD, "the second to hold it", 60)
                for one in (other, worker):
                    one.terminate()
                    one.join(60)
                    assert one.exitcode == 0
        assert (first.lowest, second.lowest) == (0.0, 0.0)

        harness.start_worker(unknown_schema_grace_seconds=0.5, held_records=1_000)
        harness.wait_drained(300)
        letters = harness.dead_letters()
    assert [letter.header(names.DLQ_DISPOSITION) for letter in letters] == ["UNKNOWN_SCHEMA"] * len(BLOCKED)
    assert Counter(line["event"] for line in notes(journal, "effect")) == dict.fromkeys(expected, 1)


def _serving(gauges: Gauges) -> bool:
    try:
        gauges.held()
    except OSError:
        return False
    return True
