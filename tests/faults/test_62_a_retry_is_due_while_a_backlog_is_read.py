"""A retry is due while a long backlog is read. What must come out: it runs when it is due, not behind the backlog."""

import itertools
import statistics
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

HANDLER_SECONDS = 0.04  # with 4 slots a hundred events a second: the backlog alone takes a minute, or an hour
LATE_SECONDS = 15.0  # loose: what is tested is that none waits for the backlog
RETRIES = 20


@pytest.fixture
def pause() -> Callable[[], object]:
    never = threading.Event()
    return lambda: never.wait(HANDLER_SECONDS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backlog", [6_000, pytest.param(250_000, marks=pytest.mark.long(whole=True))])
def test_it_starts_within_moments_of_its_time(
    settings: Settings, pause: Callable[[], object], backlog: int, record_property: Callable[[str, object], None]
) -> None:
    late: list[float] = []
    runs = itertools.count(1)
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        run = next(runs)
        if delivery.attempt > 1:
            late.append((clock.wall_ms() - delivery.timestamp_ms) / 1000 - 1)
        elif run % 10 == 1:
            raise Retry("later")
        pause()

    chosen = tuned(settings, retry_seconds=(1,), slots=4, stop_budget_seconds=5.0)
    with GroupHarness(group, chosen, workers=0) as harness:
        for _ in range(0, backlog, 2_000):
            harness.publish(*(order_created() for _ in range(2_000)))
        harness.start_worker()
        harness.wait_until(lambda: len(late) >= RETRIES, "the retries to run", 120)
        assert next(runs) < backlog, "the backlog was over before the retries were due: nothing was shown"
    record_property("late_seconds_median", statistics.median(late))
    record_property("late_seconds_max", max(late))
    assert min(late) >= 0
    assert max(late) < LATE_SECONDS
