"""On close the highest *seen* offset is committed. What must come out: the lowest unresolved one."""

from consumers.runtime.offsets import OffsetLedger

PLACE = ("orders", 0)


def nowhere(_place: tuple[str, int]) -> int:
    return -1001


def test_offsets_0_1_5_done_of_0_to_9_commit_2() -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    for offset in range(10):
        ledger.deliver(PLACE, offset, 100)
    for offset in (5, 0, 1):
        ledger.resolve(PLACE, offset, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 2}
