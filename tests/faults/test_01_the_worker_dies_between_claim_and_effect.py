"""The worker dies between claim and effect; the redelivery meets the claim."""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consumers.runtime.claims import Answer, ClaimRequest, Claims
from consumers.runtime.group import Delivery
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created
from schemas.events import OrderCreated

DOOMED = """
import os, signal
from orderflow.testing import make_group
from schemas.events import OrderCreated

group = make_group(name={name!r})

@group.on(OrderCreated)
def die(event, delivery, dependencies):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def request(token: str) -> ClaimRequest:
    return ClaimRequest("event", token, b"12345678", (0, 0), alone=True)


def test_the_claim_of_the_dead_is_busy_until_its_lease_ends_and_then_unsure(open_claims: Callable[..., Claims]) -> None:
    dead, heir = open_claims(lease_seconds=0.5), open_claims(lease_seconds=0.5)
    claimed_at = clock.monotonic()
    dead.claim([request("dead")])
    answers = [heir.claim([request("heir")])[0].answer]
    pause = threading.Event()
    while answers[-1] is Answer.BUSY:
        assert clock.monotonic() < claimed_at + 60
        pause.wait(0.02)
        answers += [reply.answer for reply in heir.claim([request("heir")])]
    assert answers[0] is Answer.BUSY
    assert answers[-1] is Answer.UNSURE
    assert clock.monotonic() - claimed_at >= 0.498  # Redis counts whole milliseconds
    assert dead.complete([("event", "dead")]) == [False]


def test_the_heir_waits_and_has_the_effect_once(
    few_partitions: Settings,
    start_worker: Callable[[Settings, str], subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    runs: list[tuple[str, bool, int]] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        runs.append((str(event.event_id), delivery.maybe_done, delivery.attempt))

    orders = [order_created() for _ in range(5)]
    with GroupHarness(group, few_partitions, workers=0) as harness:
        harness.publish(*orders)
        doomed = start_worker(few_partitions, DOOMED.format(name=group.name))
        assert doomed.wait(60) == -signal.SIGKILL, (tmp_path / "worker.log").read_text()
        assert sum(harness.committed().values()) == 0
        harness.start_worker()
        harness.wait_drained(60)
        letters = harness.dead_letters()
    assert letters == []
    assert sorted(event for event, _, _ in runs) == sorted(str(order.event_id) for order in orders)
    assert {attempt for _, _, attempt in runs} == {1}
    assert any(maybe_done for _, maybe_done, _ in runs)
