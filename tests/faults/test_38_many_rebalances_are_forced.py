"""Fifty rebalances are forced with commits in flight. What must come out: every partition moves again after each."""

import threading
from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core import clock, log
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, tuned
from schemas.events import OrderCreated
from tests.group_flow import GroupWatch, OrderFlow, outsider, with_protocol

_log = log.get(__name__)

WORKERS, PARTITIONS = 2, 4
AGAIN_SECONDS = 20.0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long(whole=True))])
def test_each_partition_moves_again_after_each(settings: Settings, protocol: str, *, short: bool) -> None:
    runs: list[str] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        threading.Event().wait(0.02)
        runs.append(str(event.event_id))

    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    # A commit is under way nearly always.
    chosen = with_protocol(tuned(few, commit_seconds=0.02, retry_seconds=(1,)), protocol)
    again: list[float] = []
    with (
        GroupHarness(group, chosen, workers=WORKERS) as harness,
        GroupWatch(chosen, harness.topics) as watch,
        OrderFlow(chosen) as flow,
    ):
        watch.wait_shared_by(WORKERS)
        for _ in range(3 if short else 25):  # a member that joins and leaves is two of them
            with outsider(chosen, harness.topics) as owned:
                watch.wait_all_move(AGAIN_SECONDS, but=owned)
            left_at = clock.monotonic()
            watch.wait_all_move(AGAIN_SECONDS)
            again.append(clock.monotonic() - left_at)
        flow.stop()
        _log.info("all partitions moved again", seconds=again)
        harness.wait_drained(90)
        assert harness.committed() == harness.ends()
        assert harness.dead_letters() == []
    assert len(runs) == len(set(runs))
    assert set(runs) == set(flow.acknowledged)
