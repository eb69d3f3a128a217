"""The same event id twice in one batch (a relay crash): one effect, the second waits behind the first."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pytest

from consumers.runtime.claims import Answer, ClaimRequest, Claims
from consumers.runtime.group import Delivery, Outcome
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created
from schemas import codec
from schemas.events import Event, OrderCreated
from schemas.headers import event_headers


def test_the_second_is_told_who_has_the_first(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    requests = [ClaimRequest("event", token, b"12345678", (0, 0), alone=False) for token in ("first", "second")]
    first, second = claims.claim(requests)
    assert first.answer is Answer.OWNED
    assert (second.answer, second.owner) == (Answer.BUSY, "first")
    claims.complete([("event", "first")])
    assert claims.claim(requests[1:])[0].answer is Answer.DONE


@pytest.mark.parametrize("ordering", ["key", "none", "batches"])
def test_one_effect_and_never_two_at_a_time(
    few_partitions: Settings, ordering: Literal["key", "none", "batches"]
) -> None:
    orders = [order_created() for _ in range(20)]
    running: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    lock = threading.Lock()
    together: list[str] = []
    group = make_group(ordering="none" if ordering == "none" else "key")

    def run(event: Event) -> None:
        name = str(event.event_id)
        with lock:
            running[name] += 1
            runs[name] += 1
            if running[name] > 1:
                together.append(name)
        threading.Event().wait(0.02)
        with lock:
            running[name] -= 1

    if ordering == "batches":

        @group.on_batch(OrderCreated)
        def handle_batch(batch: list[tuple[Event, Delivery]], _deps: Any) -> list[Outcome]:
            for event, _ in batch:
                run(event)
            return [Outcome.PROCESSED] * len(batch)

    else:

        @group.on(OrderCreated)
        def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
            run(event)

    records = [(str(order.order_id).encode(), codec.encode(order), event_headers(order)) for order in orders]
    with GroupHarness(group, few_partitions, workers=0) as harness:
        harness.publish_raw([*records, *records])
        harness.publish_raw([record for record in records for _ in range(2)])
        harness.start_worker()
        harness.wait_drained(60)
        assert harness.dead_letters() == []
    assert together == []
    assert runs == Counter(str(order.event_id) for order in orders)
