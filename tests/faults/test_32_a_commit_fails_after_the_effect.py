"""A commit fails after the effect: what it was for is redelivered, found done, and committed later."""

import secrets
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import free_ports
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas.events import OrderCreated
from tests.faults.worker_lives import Doom, Effects, Life, Step, notes
from tests.stacks.interface import Stack

FAILED = 'orderflow_consumer_commits_total{group="%s",outcome="failed"}'


def metric(port: int, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_heir_finds_it_done_and_the_late_commit_of_the_first_changes_nothing(
    few_partitions: Settings, tmp_path: Path
) -> None:
    settings = tuned(few_partitions, lease_seconds=4.0, commit_seconds=0.2)
    (port,) = free_ports(1)
    journal = tmp_path / "journal.jsonl"
    orders = [order_created() for _ in range(10)]
    last, late = orders[-1], order_created()
    group = Effects(f"k{secrets.token_hex(4)}", journal)
    with GroupHarness(group.group(), settings, workers=0) as harness:
        # One slot and one partition: the last event is done last, and nothing of it is committed yet.
        frozen = Life(
            tuned(settings, slots=1, metrics_port=port),
            group,
            Doom(Step.COMPLETED, str(last.event_id), how=signal.SIGSTOP),
        )
        harness.publish(*orders)
        with frozen.living(tmp_path) as first:
            process = psutil.Process(first.pid)
            harness.wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "the first worker to be frozen", 60)
            assert len(notes(journal, "effect")) == len(orders)
            assert harness.committed()[0] < len(orders)
            heir = harness.start_worker()
            harness.wait_drained(60)
            answered = {"group": group.name, "result": "done"}
            registry = heir.metrics.registry
            harness.wait_until(
                lambda: (registry.get_sample_value("orderflow_claims_total", answered) or 0) >= 1,
                "the heir to have found it done",  # told once a second
            )

            process.resume()
            harness.wait_until(lambda: metric(port, FAILED % group.name) >= 1, "the late commit to be refused", 60)
            assert harness.committed() == {0: len(orders)}
            heir.stop()
            harness.publish(late)
            harness.wait_drained(60)  # the first is a member again, and commits
            assert harness.committed() == {0: len(orders) + 1}
        assert harness.dead_letters() == []
    effects = notes(journal, "effect")
    assert sorted(line["event"] for line in effects) == sorted(str(order.event_id) for order in [*orders, late])
    assert {line["pid"] for line in effects} == {first.pid}


@pytest.mark.long(whole=True)
@pytest.mark.timeout(240)
def test_a_broker_that_dies_between_effect_and_commit_costs_no_second_effect(
    few_partitions: Settings, stack: Stack
) -> None:
    settings = tuned(few_partitions, commit_seconds=0.2, slots=1)
    orders = [order_created() for _ in range(10)]
    effects: Counter[str] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        if event == orders[-1]:
            stack.kafka.kill()
        effects[str(event.event_id)] += 1

    with GroupHarness(group, settings, workers=0) as harness:
        harness.publish(*orders)
        worker = harness.start_worker()
        try:
            harness.wait_until(lambda: len(effects) == len(orders), "all effects", 60)
        finally:
            stack.kafka.start()
        harness.wait_drained(120)
        assert harness.committed() == harness.ends() == {0: len(orders)}
        assert worker.alive
    assert effects == dict.fromkeys((str(order.event_id) for order in orders), 1)
