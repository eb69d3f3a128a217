"""A fresh assignment commits an old or a too high offset.

What must come out: every commit <= end and >= the previous.
"""

from typing import Any

from consumers.runtime.group import Delivery
from consumers.runtime.offsets import OffsetLedger
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from schemas.events import OrderCreated

PLACE = ("orders", 0)


def nowhere(_place: tuple[str, int]) -> int:
    return -1001


def test_nothing_but_its_start_is_committed_before_anything_was_delivered() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 40)
    assert ledger.to_commit(nowhere) == {}
    assert ledger.to_commit(nowhere, again=True) == {PLACE: 40}


def test_without_a_known_start_nothing_is_committed_before_anything_was_delivered() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, None)
    assert ledger.to_commit(nowhere, again=True) == {}


def test_an_acknowledgement_of_an_old_epoch_is_ignored() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    ledger.deliver(PLACE, 0, 1)
    ledger.revoke(PLACE)
    ledger.assign(PLACE, 2, 0)
    ledger.deliver(PLACE, 0, 1)
    assert not ledger.resolve(PLACE, 0, 1)
    assert ledger.to_commit(nowhere) == {}
    assert ledger.resolve(PLACE, 0, 2)
    assert ledger.to_commit(nowhere) == {PLACE: 1}


def test_a_position_below_the_committed_offset_is_not_committed() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 40)
    assert ledger.to_commit(lambda _place: 12) == {}
    assert ledger.to_commit(lambda _place: 12, again=True) == {PLACE: 40}


def test_commits_of_five_assignments_never_go_back_and_never_pass_the_end(settings: Settings) -> None:
    group = make_group()

    @group.on(OrderCreated)
    def handle(_event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
        pass

    before: dict[int, int] = {}
    with GroupHarness(group, tuned(settings, commit_seconds=0.05), workers=0) as harness:
        for _ in range(5):
            worker = harness.start_worker()
            harness.publish(*(order_created() for _ in range(40)))
            harness.wait_drained()
            worker.stop()
            committed, ends = harness.committed(), harness.ends()
            assert all(committed.get(p, 0) >= offset for p, offset in before.items())
            assert all(offset <= ends[p] for p, offset in committed.items())
            before = committed
    assert before == ends
