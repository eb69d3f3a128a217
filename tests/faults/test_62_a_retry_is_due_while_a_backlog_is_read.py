"""A retry is due while a long backlog is read. What must come out: it runs when it is due, not behind the backlog."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from consumers.runtime.group import Delivery
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Retry
from schemas.events import OrderCreated

BACKLOG = 6_000
HANDLER_SECONDS = 0.04  # with 4 slots the backlog alone takes a minute
LATE_SECONDS = 15.0  # loose: what is tested is that it does not wait for the backlog


@pytest.fixture
def pause() -> Callable[[], object]:
    never = threading.Event()
    return lambda: never.wait(HANDLER_SECONDS)


def test_it_starts_within_moments_of_its_time(settings: Settings, pause: Callable[[], object]) -> None:
    late: list[float] = []
    failing: list[object] = []
    runs: list[int] = []
    group = make_group()

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        runs.append(delivery.attempt)
        if delivery.attempt > 1:
            late.append((clock.wall_ms() - delivery.timestamp_ms) / 1000 - 1)
        elif not failing:
            failing.append(event.event_id)
            raise Retry("later")
        pause()

    chosen = tuned(settings, retry_seconds=(1,), slots=4, stop_budget_seconds=5.0)
    with GroupHarness(group, chosen, workers=0) as harness:
        harness.publish(*(order_created() for _ in range(BACKLOG)))
        harness.start_worker()
        harness.wait_until(lambda: bool(late), "the retry to run", 60)
        assert len(runs) < BACKLOG, "the backlog was over before the retry was due: nothing was shown"
    assert 0 <= late[0] < LATE_SECONDS
