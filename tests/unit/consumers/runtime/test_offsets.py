"""The ledger beyond the histories of the fault tests."""

from consumers.runtime.offsets import OffsetLedger

PLACE = ("orders", 0)


def nowhere(_place: tuple[str, int]) -> int:
    return -1001


def test_a_record_delivered_again_while_it_is_in_hand_is_not_taken_twice() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    assert ledger.deliver(PLACE, 3, 10)
    assert not ledger.deliver(PLACE, 3, 10)
    assert ledger.held(PLACE) == (1, 10)


def test_a_record_below_the_highest_delivered_one_is_taken_and_holds_the_commit() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 90)
    ledger.deliver(PLACE, 100, 1)
    assert ledger.deliver(PLACE, 90, 1)
    ledger.resolve(PLACE, 100, 1)
    assert ledger.to_commit(nowhere) == {}
    ledger.resolve(PLACE, 90, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 101}


def test_trailing_control_records_are_committed_once_nothing_is_in_hand() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    ledger.deliver(PLACE, 0, 1)
    assert ledger.to_commit(lambda _place: 5) == {}
    ledger.resolve(PLACE, 0, 1)
    assert ledger.to_commit(lambda _place: 5) == {PLACE: 5}


def test_what_is_passed_over_is_committed_with_the_rest() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 7)
    ledger.pass_over(PLACE, 7)
    ledger.pass_over(PLACE, 8)
    assert ledger.to_commit(nowhere) == {PLACE: 9}
