"""An old failed commit is retried after a newer one. What must come out: never backwards."""

from consumers.runtime.offsets import OffsetLedger

PLACE = ("orders", 0)


def nowhere(_place: tuple[str, int]) -> int:
    return -1001


def ledger_with(delivered: int) -> OffsetLedger:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    for offset in range(delivered):
        ledger.deliver(PLACE, offset, 1)
    return ledger


def test_after_a_failed_commit_the_current_prefix_is_sent_and_not_the_old_one() -> None:
    ledger = ledger_with(10)
    ledger.resolve(PLACE, 0, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 1}
    for offset in range(1, 8):
        ledger.resolve(PLACE, offset, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 8}
    ledger.commit_unknown([PLACE])  # the report of the first commit arrives late, and says no
    assert ledger.to_commit(nowhere) == {PLACE: 8}


def test_a_position_that_falls_back_never_moves_the_commit_back() -> None:
    ledger = ledger_with(3)
    for offset in range(3):
        ledger.resolve(PLACE, offset, 1)
    assert ledger.to_commit(lambda _place: 5) == {PLACE: 5}
    ledger.commit_unknown([PLACE])
    assert ledger.to_commit(lambda _place: 2) == {}


def test_the_prefix_is_sent_again_on_demand_since_a_zombie_may_have_set_it_back() -> None:
    ledger = ledger_with(1)
    ledger.resolve(PLACE, 0, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 1}
    assert ledger.to_commit(nowhere) == {}
    assert ledger.to_commit(nowhere, again=True) == {PLACE: 1}
