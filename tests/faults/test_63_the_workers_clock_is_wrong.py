"""A worker's wall clock is ahead of the broker's, or behind it: no retry runs early."""

import secrets
from datetime import timedelta
from pathlib import Path

import pytest

from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_created
from tests.faults.worker_lives import Effects, Life, notes

DELAY_MS = 1_000


@pytest.mark.parametrize("seconds", [2, -2], ids=["ahead", "behind"])
def test_no_retry_runs_before_its_time_on_the_brokers_clock(
    few_partitions: Settings, tmp_path: Path, seconds: int
) -> None:
    orders = [order_created() for _ in range(20)]
    journal = tmp_path / "journal.jsonl"
    all_fail_once = frozenset(str(order.event_id) for order in orders)
    group = Effects(f"k{secrets.token_hex(4)}", journal, retried=all_fail_once)
    with GroupHarness(group.group(), few_partitions, workers=0) as harness:
        harness.publish(*orders)
        with Life(few_partitions, group, ahead=timedelta(seconds=seconds)).living(tmp_path) as worker:
            harness.wait_drained(60)
            assert worker.is_alive()
        assert harness.dead_letters() == []
    retries = notes(journal, "run", attempt=2)
    assert {line["event"] for line in retries} == all_fail_once
    assert len(retries) == len(orders)
    # The journal's times are of the machine's clock, and so are the broker's.
    assert min(line["ms"] - line["appended_ms"] for line in retries) >= DELAY_MS
