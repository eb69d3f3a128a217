"""Bounds: each partition by itself, and a pause only for what does not drain."""

import pytest

from consumers.runtime.bounds import Bounds
from consumers.runtime.offsets import OffsetLedger

BUSY, IDLE = ("orders", 0), ("orders", 1)


@pytest.fixture
def ledger() -> OffsetLedger:
    made = OffsetLedger()
    for place in (BUSY, IDLE):
        made.assign(place, 1, 0)
    return made


@pytest.fixture
def bounds(ledger: OffsetLedger) -> Bounds:
    return Bounds(ledger, records=10, size=1_000, read_records=4)


def deliver(ledger: OffsetLedger, bounds: Bounds, offsets: range, *, size: int = 1) -> None:
    ledger.deliver_all(BUSY, list(offsets), [size] * len(offsets))
    bounds.delivered(BUSY)


def test_a_partition_over_its_bound_is_paused_alone_and_goes_on_at_half_of_it(
    ledger: OffsetLedger, bounds: Bounds
) -> None:
    deliver(ledger, bounds, range(11))
    bounds.delivered(IDLE)
    assert bounds.to_pause() == [BUSY]
    assert (bounds.to_pause(), bounds.to_resume()) == ([], [])
    ledger.resolve_all(BUSY, range(5), 1)
    assert bounds.to_resume() == []
    ledger.resolve(BUSY, 5, 1)
    assert bounds.to_resume() == [BUSY]
    assert bounds.to_resume() == []


def test_few_large_records_are_over_the_bound_too(ledger: OffsetLedger, bounds: Bounds) -> None:
    deliver(ledger, bounds, range(3), size=400)
    assert bounds.to_pause() == [BUSY]


def test_a_partition_is_tight_while_another_read_could_take_it_over_its_bound(
    ledger: OffsetLedger, bounds: Bounds
) -> None:
    deliver(ledger, bounds, range(7))
    assert bounds.to_pause() == []
    assert bounds.is_tight()
    ledger.resolve(BUSY, 0, 1)
    assert not bounds.is_tight()


def test_a_paused_partition_holds_up_no_read_of_others(ledger: OffsetLedger, bounds: Bounds) -> None:
    deliver(ledger, bounds, range(11))
    bounds.to_pause()
    assert not bounds.is_tight()


def test_a_partition_that_comes_back_begins_anew(ledger: OffsetLedger, bounds: Bounds) -> None:
    deliver(ledger, bounds, range(11))
    bounds.to_pause()
    bounds.forget(BUSY)
    assert bounds.to_resume() == []
    bounds.delivered(BUSY)
    assert bounds.to_pause() == [BUSY]
