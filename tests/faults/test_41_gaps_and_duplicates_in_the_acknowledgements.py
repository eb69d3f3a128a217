"""Gaps and duplicates in the acknowledgements freeze or falsify the commit.

What must come out, whatever the order: the lowest unresolved delivered offset, always.
"""

from hypothesis import given
from hypothesis import strategies as st

from consumers.runtime.offsets import OffsetLedger

PLACE = ("orders", 3)


def nowhere(_place: tuple[str, int]) -> int:
    return -1001


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, int]]]:
    """Offsets with holes, and steps: deliver the next one, resolve any (again), or commit."""
    offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=25)))
    steps = draw(
        st.lists(
            st.one_of(
                st.just(("deliver", 0)),
                st.tuples(st.just("resolve"), st.sampled_from(offsets)),
                st.just(("commit", 0)),
                st.just(("fail", 0)),
            ),
            max_size=120,
        )
    )
    return offsets, steps


@given(histories())
def test_every_commit_is_the_lowest_unresolved_delivered_offset(
    history: tuple[list[int], list[tuple[str, int]]],
) -> None:
    offsets, steps = history
    ledger = OffsetLedger()
    ledger.assign(PLACE, 7, None)
    waiting, delivered, resolved, commits = list(offsets), [], set(), []
    for step, offset in [*steps, *[("deliver", 0)] * len(offsets), ("commit", 0)]:
        if step == "deliver" and waiting:
            delivered.append(waiting.pop(0))
            assert ledger.deliver(PLACE, delivered[-1], 10)
        elif step == "resolve" and offset in delivered:
            resolved.add(offset)
            assert ledger.resolve(PLACE, offset, 7)
        elif step == "fail":
            ledger.commit_unknown([PLACE])
        elif step == "commit":
            due = ledger.to_commit(nowhere)
            open_ones = [o for o in delivered if o not in resolved]
            expected = min(open_ones) if open_ones else (delivered[-1] + 1 if delivered else None)
            if PLACE in due:
                assert due[PLACE] == expected
                commits.append(due[PLACE])
            else:
                assert expected is None or expected == commits[-1]
    assert commits == sorted(commits)


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=20))
def test_duplicates_never_freeze_the_commit(order: list[int], repeated: list[int]) -> None:
    ledger = OffsetLedger()
    ledger.assign(PLACE, 1, 0)
    for offset in range(12):
        ledger.deliver(PLACE, offset, 1)
    for offset in [*order[:6], *[o for o in repeated if o in order[:6]], *order[6:]]:
        ledger.resolve(PLACE, offset, 1)
    assert ledger.to_commit(nowhere) == {PLACE: 12}
    assert ledger.held(PLACE) == (0, 0)
