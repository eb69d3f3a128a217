"""What the random walks found about a group whose committed offset somebody else's late commit has set back."""

from consumers.runtime.offsets import OffsetLedger

PLACE = ("orders", 0)


def no_position_yet(_place: tuple[str, int]) -> int:
    return -1


def test_a_group_that_was_set_back_is_set_right_although_nothing_is_left_to_read() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 3)
    assert ledger.to_commit(no_position_yet) == {}
    assert ledger.to_commit(no_position_yet, again=True) == {PLACE: 3}
