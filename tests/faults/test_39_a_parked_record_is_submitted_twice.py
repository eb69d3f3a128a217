"""A parked record's partition goes and comes back to the same worker.

What must come out: the old copy is dropped, and the record runs once.
"""

import threading
from collections import Counter
from typing import Any

import pytest

from consumers.runtime.claims import Answer
from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Outage, Retry
from schemas import codec
from schemas.events import OrderCreated
from schemas.headers import event_headers
from tests.group_flow import GroupWatch, outsider, with_protocol
from tests.outbox_flow import wait_until

PARTITIONS = 2
WHOLE = pytest.mark.long(whole=True)


@pytest.fixture(params=["consumer", pytest.param("classic", marks=WHOLE)])
def two_partitions(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings with two partitions: a member that joins gets one, and gives it back when it leaves."""
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})
    quick = tuned(few, retry_seconds=(4,), lease_seconds=2.0, commit_seconds=0.1, revoke_budget_seconds=0.5)
    return with_protocol(quick, request.param)


@pytest.mark.long
@pytest.mark.parametrize("how", ["held", "not_due", pytest.param("running", marks=WHOLE)])
def test_the_same_worker_gets_it_back_and_runs_it_once(two_partitions: Settings, how: str, *, short: bool) -> None:
    # Two events of one order in each partition: where the first waits, the second waits behind it.
    orders = [order_created() for _ in range(PARTITIONS)]
    events = [[order, order_created(order_id=order.order_id)] for order in orders]
    healed = threading.Event()
    tried: Counter[object] = Counter()
    done: Counter[object] = Counter()
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        tried[event.event_id] += 1
        if how == "held" and not healed.is_set():
            raise Outage("the provider is down")
        if how == "running":
            healed.wait(100)
        if how == "not_due" and delivery.attempt == 1:
            raise Retry("451")
        done[event.event_id] += 1

    with GroupHarness(group, two_partitions) as harness, GroupWatch(two_partitions, harness.topics) as watch:
        for partition, mine in enumerate(events):
            records = [(str(e.order_id).encode(), codec.encode(e), event_headers(e)) for e in mine]
            harness.publish_raw(records, partition=partition)
        wait_until(lambda: tried.keys() >= {order.event_id for order in orders})
        if how == "not_due":  # the copies wait, and nothing else does
            wait_until(lambda: watch.source() == dict.fromkeys(range(PARTITIONS), 2))
        taken = set()
        for _ in range(1 if short or how == "not_due" else 5):
            with outsider(two_partitions, harness.topics) as owned:
                watch.wait_shared_by(2, 60)
                taken |= owned()
            watch.wait_shared_by(1, 60)
        assert taken
        assert how == "not_due" or not done
        healed.set()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
    assert done == Counter(event.event_id for mine in events for event in mine)
    if how == "running":
        assert tried == done
        return
    # Nobody was there but this worker: such an answer means that another delivery of the record went first.
    answers = harness.workers[0].metrics.registry  # complete since it has stopped
    for result in (Answer.DONE, Answer.UNSURE, Answer.SUPERSEDED, Answer.MISMATCH):
        assert not answers.get_sample_value("orderflow_claims_total", {"group": group.name, "result": result}), result
