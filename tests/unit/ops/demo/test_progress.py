from orderflow.core.topics import GroupTopics
from orderflow.ops.demo.progress import Offsets, Standing, standing

TOPICS = GroupTopics("orders", "email", (1, 5))
NOW_MS = 1_000_000


def at(committed: Offsets, ends: Offsets, appended: dict[tuple[tuple[str, int], int], int] | None = None) -> Standing:
    return standing(TOPICS, committed, ends, lambda place, offset: (appended or {}).get((place, offset)), NOW_MS)


def test_what_is_committed_is_processed_and_the_rest_is_lag() -> None:
    told = at({("orders", 0): 3}, {("orders", 0): 5, ("orders", 1): 2})
    assert (told.processed, told.lag, told.waiting, told.dead) == (3, 4, 0, 0)
    assert not told.drained


def test_a_copy_that_waits_is_not_processed_yet() -> None:
    told = at({("orders", 0): 1}, {("orders", 0): 1, ("orders.email.retry.1s", 0): 1})
    assert (told.processed, told.waiting) == (0, 1)
    assert not told.drained


def test_a_record_that_went_through_two_tiers_is_processed_once() -> None:
    tiers = {("orders.email.retry.1s", 0): 1, ("orders.email.retry.5s", 0): 1}
    told = at({("orders", 0): 1, **tiers}, {("orders", 0): 1, **tiers})
    assert (told.processed, told.waiting, told.lag) == (1, 0, 0)
    assert told.drained


def test_a_dead_record_is_not_processed() -> None:
    told = at({("orders", 0): 2}, {("orders", 0): 2, ("orders.email.dlq", 0): 1})
    assert (told.processed, told.dead) == (1, 1)
    assert told.drained


def test_other_groups_do_not_count() -> None:
    told = at({("orders", 0): 1}, {("orders", 0): 1, ("orders.audit.retry.1s", 0): 9, ("orders.audit.dlq", 0): 9})
    assert (told.processed, told.dead, told.waiting) == (1, 0, 0)


def test_the_oldest_age_is_that_of_the_first_unsettled_record() -> None:
    retry = "orders.email.retry.1s"
    told = at(
        {("orders", 0): 4},
        {("orders", 0): 6, (retry, 0): 1},
        {(("orders", 0), 4): NOW_MS - 200, ((retry, 0), 0): NOW_MS - 3_500},
    )
    assert told.oldest_seconds == 3.5


def test_an_age_that_is_not_known_is_none_and_a_clock_behind_the_broker_is_zero() -> None:
    assert at({}, {("orders", 0): 1}).oldest_seconds is None
    assert at({}, {("orders", 0): 1}, {(("orders", 0), 0): NOW_MS + 50}).oldest_seconds == 0.0
