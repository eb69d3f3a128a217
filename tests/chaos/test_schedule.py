"""A schedule is a function of its seed, and rich enough."""

from itertools import pairwise

import pytest

from tests.chaos.schedule import Strike, plan

SEEDS = range(50)


def test_the_same_seed_is_the_same_schedule() -> None:
    assert [plan(seed, 300) for seed in SEEDS] == [plan(seed, 300) for seed in SEEDS]
    assert len({tuple(plan(seed, 300)) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_kind_of_fault_occurs_within_ten_minutes(seed: int) -> None:
    assert {one.strike for one in plan(seed, 600)} == set(Strike)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_has_its_end_within_the_run(seed: int) -> None:
    found = plan(seed, 120)
    assert len(found) > 20
    assert all(one.at > 0 and one.at + one.seconds < 120 for one in found)
    assert all(before.at <= after.at for before, after in pairwise(found))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("word", ["the broker", "Redis is", "PostgreSQL is"])
def test_a_server_is_not_hit_again_while_it_is_down(seed: int, word: str) -> None:
    found = [one for one in plan(seed, 600) if word in one.strike]
    assert all(before.at + before.seconds <= after.at for before, after in pairwise(found))
