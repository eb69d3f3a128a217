"""A partition leaves and comes back. What must come out: its commits go on, also when it was paused as it left."""

import threading
from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas.events import OrderCreated
from tests.group_flow import GroupWatch, OrderFlow, outsider, with_protocol

PARTITIONS = 2


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long(whole=True))])
def test_its_commits_go_on_each_time(settings: Settings, protocol: str, *, short: bool) -> None:
    runs: list[object] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        threading.Event().wait(0.02)
        runs.append(event.event_id)

    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    # Bounds so low that each partition is paused most of the time.
    narrow = tuned(few, commit_seconds=0.1, held_records=6, batch_records=4, slots=2)
    chosen = with_protocol(narrow, protocol)
    taken = set()
    with GroupHarness(group, chosen) as harness, GroupWatch(chosen, harness.topics) as watch:
        harness.publish(*(order_created() for _ in range(200)))
        with OrderFlow(chosen, pause_seconds=0.1) as flow:
            watch.wait_all_move(60)
            for _ in range(1 if short else 10):
                with outsider(chosen, harness.topics) as owned:
                    watch.wait_shared_by(2, 60)
                    taken |= {partition for topic, partition in owned() if topic == harness.topics.source}
                watch.wait_shared_by(1, 60)
                watch.wait_all_move(60)
        harness.wait_drained(90)
        assert harness.committed() == harness.ends()
        assert harness.dead_letters() == []
    assert taken
    assert len(runs) == len(set(runs)) == 200 + len(flow.acknowledged)
