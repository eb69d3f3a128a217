import pytest

from orderflow.ops.provision.trim import Share, shares


@pytest.mark.parametrize(
    ("start", "committed", "end", "state", "offsets"),
    [
        (0, 5, 9, "trim", 5),
        (3, 5, 5, "trim", 2),
        (5, 5, 9, "empty", 0),
        (6, 5, 9, "empty", 0),  # trimmed, and a commit of an old member came late
        (0, 0, 0, "empty", 0),
        (0, None, 9, "no position", 0),
        (0, 10, 9, "beyond the end", 0),
    ],
)
def test_only_what_lies_below_a_committed_offset_of_this_log_goes(
    start: int, committed: int | None, end: int, state: str, offsets: int
) -> None:
    share = Share("email", "orders.email.retry.1s", 0, start, committed, end)

    assert (share.state, share.offsets) == (state, offsets)


def test_each_partition_is_judged_by_itself() -> None:
    found = shares("email", "t", {0: 0, 1: 0, 2: 2}, {0: 4, 2: 2}, {0: 4, 1: 7, 2: 2})

    assert [share.state for share in found] == ["trim", "no position", "empty"]
