"""Off by one at commit or shutdown: committed == k after k records, lag == n - k."""

from collections import Counter
from typing import Any

import pytest

from consumers.runtime.group import Delivery, Outcome
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Outage
from schemas.events import Event, OrderCreated

NUMBER = 7


@pytest.mark.parametrize("batches", [False, True], ids=["single", "batches"])
def test_committed_is_what_was_handled(few_partitions: Settings, *, batches: bool) -> None:
    orders = [order_created() for _ in range(NUMBER)]
    place = {order.event_id: number for number, order in enumerate(orders)}
    allowed = [0]
    done: Counter[int] = Counter()
    group = make_group()

    def handle(event: Event) -> None:
        if place[event.event_id] >= allowed[0]:
            raise Outage("not yet")
        done[place[event.event_id]] += 1

    if batches:

        @group.on_batch(OrderCreated)
        def handle_batch(batch: list[tuple[Event, Delivery]], _deps: Any) -> list[Outcome]:
            if any(place[event.event_id] >= allowed[0] for event, _ in batch):
                if len(batch) == 1:
                    raise Outage("not yet")
                raise ValueError("one of these is not yet")
            done.update(place[event.event_id] for event, _ in batch)
            return [Outcome.PROCESSED] * len(batch)

    else:

        @group.on(OrderCreated)
        def handle_one(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
            handle(event)

    with GroupHarness(group, few_partitions, workers=0) as harness:
        harness.publish(*orders)
        for k in (0, 1, 4, NUMBER):
            allowed[0] = k
            worker = harness.start_worker()
            harness.wait_until(lambda k=k: len(done) == k, f"{k} records to be handled", 60)  # type: ignore[misc]
            if k:
                harness.wait_until(lambda k=k: harness.committed() == {0: k}, f"a commit of {k}", 60)  # type: ignore[misc]
            worker.stop()
            assert harness.committed() == {0: k}
            assert harness.lag() == NUMBER - k
    assert set(done.values()) == {1}


def test_a_stop_commits_what_was_handled_since_the_last_commit(few_partitions: Settings) -> None:
    done: list[OrderCreated] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        done.append(event)

    with GroupHarness(group, tuned(few_partitions, commit_seconds=600.0), workers=0) as harness:
        worker = harness.start_worker()
        harness.publish(*(order_created() for _ in range(NUMBER)))
        harness.wait_until(lambda: len(done) == NUMBER, "all to be handled", 60)
        assert harness.committed() == {0: 0}
        began = clock.monotonic()
        worker.stop()
        assert clock.monotonic() - began < few_partitions.worker.revoke_budget_seconds
        assert harness.committed() == harness.ends()
