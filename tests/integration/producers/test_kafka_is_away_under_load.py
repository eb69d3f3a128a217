"""Kafka away for minutes while orders come in: 201, then 503 by the thresholds, flat memory, then all is published."""

import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
import pytest

from orderflow.core import clock

Count = Callable[[str], int]
MIB = 1024 * 1024
# The relay's window (4 batches) and the client's own buffers fill once; what leaks grows with the time.
GROWTH_BYTES = 48 * MIB
UNPUBLISHED = "SELECT count(*) FROM api.outbox WHERE published_at IS NULL"


class Memory:
    """Samples the resident memory of processes."""

    def __init__(self, **processes: Popen[bytes]) -> None:
        self._processes = {name: psutil.Process(process.pid) for name, process in processes.items()}
        self.samples: dict[str, list[int]] = {name: [] for name in processes}

    def sample(self) -> None:
        for name, process in self._processes.items():
            self.samples[name].append(process.memory_info().rss)

    def report(self) -> str:
        return ", ".join(
            f"{name} {kept[0] / MIB:.0f} -> {max(kept) / MIB:.0f} MiB" for name, kept in self.samples.items()
        )


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_long_outage_of_kafka_fills_the_outbox_up_to_its_limit_and_then_drains(
    start_api: Callable[..., Any],
    start_role: Callable[..., Popen[bytes]],
    local_stack: Any,
    callers: Any,
    count: Count,
    all_published: Callable[[list[str]], None],
    tmp_path: Path,
    *,
    short: bool,
) -> None:
    relay = start_role("relay")
    # Short: 150 rows. Whole: what is the default, of which the age of 5 minutes is reached first.
    limit = 150 if short else 50_000
    api = start_api(ORDERFLOW_API__BACKLOG_MAX_ROWS=str(limit))
    away_seconds, patience = (10, 120) if short else (600, 500)
    load = callers([api], number=4, pause=0.02)
    memory = Memory(api=api.process, relay=relay)
    with load.calling():
        load.wait(lambda: len(load.promised) >= 50 and count(UNPUBLISHED) < 20, "the relay does not publish")
        before = len(load.promised)
        local_stack.kafka.kill()
        went = clock.monotonic()
        try:
            memory.sample()
            load.wait(lambda: load.statuses()[503] > 0, "the backlog never closes the API", patience)
            # Until then nobody was refused: that many wait now, or the oldest waits for so long.
            closed_after = clock.monotonic() - went
            waiting = count(UNPUBLISHED)
            while clock.monotonic() < went + away_seconds or load.statuses()[503] < 20:
                threading.Event().wait(1)
                memory.sample()
        finally:
            local_stack.kafka.start()
        back = clock.monotonic()
        during = len(load.promised) - before
        load.wait_for_more(50, 300)
        reopened_after = clock.monotonic() - back
    assert waiting > limit or closed_after > 300 - 5
    refused = [reply for reply in load.replies if reply.status == 503]
    assert set(load.statuses()) == {201, 503}, load.statuses()
    assert {reply.kind for reply in refused} == {"backlog"}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    all_published(load.promised)
    for name, kept in memory.samples.items():
        assert max(kept) - kept[0] < GROWTH_BYTES, f"{name} grew: {memory.report()}"
    assert relay.poll() is None
    told = (
        f"away {away_seconds} s: {during} orders taken, closed after {closed_after:.0f} s at {waiting} rows, "
        f"{len(refused)} refused, 201 again after {reopened_after:.1f} s, {len(load.promised)} promised; "
        f"{memory.report()}\n"
    )
    (tmp_path / "outage.txt").write_text(told)
