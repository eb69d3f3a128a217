from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.errors import Reject
from retry.failure import Failure
from retry.policy import Disposition, Stage
from retry.story import UNREADABLE, Story, dlq_id, headers_for_dlq, headers_for_tier
from schemas.headers import Headers, header, integer, is_reserved

HERE = ("orders.email.retry.1s", 3, 99, 1_700_000_000_000)
SOURCE = ("orders", 3, 7, 1_600_000_000_000)
FAILURE = Failure(Stage.HANDLE, "builtins.ValueError", "", "consumers/email/group.py:3 confirm", "f" * 16, 1, 1_700)

names = st.sampled_from(
    [
        "__dlq.errors.delivery.count",
        "retry.rounds",
        "dlq.replay.count",
        "dlq.replay.id",
        "retry.after",
        "__dlq.errors.topic",
        "__dlq.errors.partition",
        "__dlq.errors.offset",
        "__dlq.errors.timestamp",
        "__dlq.errors.first.timestamp",
        "__dlq.errors.first.exception.class.name",
        "__dlq.errors.disposition",
        "dlq.id",
        "ce_id",
        "",
        "Retry.rounds",
    ]
) | st.text(max_size=20)
values = st.none() | st.binary(max_size=40) | st.integers(-5, 2**80).map(lambda n: str(n).encode())
any_headers = st.lists(st.tuples(names, values), max_size=30)


def first_hop(headers: Headers | None = None) -> Headers:
    story = Story.read(headers, own_topic=False, origin=SOURCE)
    return headers_for_tier(headers, story, FAILURE, group="email")


def test_a_record_of_the_source_has_no_past_whatever_it_claims() -> None:
    forged: Headers = [("__dlq.errors.delivery.count", b"3"), ("dlq.replay.count", b"9"), ("retry.after", b"99999")]
    story = Story.read(forged, own_topic=False, origin=SOURCE)
    assert story == Story.read(None, own_topic=False, origin=SOURCE)
    assert (story.pair, story.origin, story.after_ms) == ((0, 0), SOURCE, 0)


def test_forged_headers_are_stripped_at_the_first_hop() -> None:
    copy = first_hop([("dlq.id", b"mine"), ("x", b"1"), ("__dlq.errors.topic", b"elsewhere"), ("retry.new", b"1")])
    assert header(copy, "__dlq.errors.topic") == "orders"
    assert header(copy, "dlq.id") is None
    assert header(copy, "retry.new") is None
    assert copy[0] == ("x", b"1")


def test_a_copy_tells_its_story() -> None:
    story = Story.read(first_hop(), own_topic=True, origin=HERE)
    assert story == Story(SOURCE, attempts=1, first_failure_ms=1_700, first_failure_class="builtins.ValueError")  # type: ignore[arg-type]
    assert story.pair == (0, 1)


def test_the_first_failure_is_written_once() -> None:
    story = Story.read(first_hop(), own_topic=True, origin=HERE)
    later = replace(FAILURE, class_name="KeyError", attempts=2, at_ms=9_999)
    again = Story.read(headers_for_tier(first_hop(), story, later, group="email"), own_topic=True, origin=HERE)
    assert (again.attempts, again.first_failure_ms, again.first_failure_class) == (2, 1_700, "builtins.ValueError")


def test_a_longer_wait_travels_once_and_not_to_the_next_copy() -> None:
    story = Story.read(None, own_topic=False, origin=SOURCE)
    copy = headers_for_tier(None, story, FAILURE, group="email", after_seconds=31.0005)
    held = Story.read(copy, own_topic=True, origin=HERE)
    assert held.after_ms == 31_001
    second = headers_for_tier(copy, held, replace(FAILURE, attempts=2), group="email")
    assert Story.read(second, own_topic=True, origin=HERE).after_ms == 0


def test_a_dead_letter_says_why_and_which() -> None:
    story = Story.read(first_hop([("ce_id", b"an-id")]), own_topic=True, origin=HERE)
    letter = headers_for_dlq(
        first_hop([("ce_id", b"an-id")]),
        story,
        Failure.of(Reject("gone"), stage=Stage.HANDLE, attempts=2, at_ms=5),
        group="email",
        disposition=Disposition.PERMANENT,
        value=b"value",
    )
    assert letter[0] == ("ce_id", b"an-id")
    told = {name: header(letter, name) for name, _ in letter if is_reserved(name)}
    assert told == {
        "__dlq.errors.topic": "orders",
        "__dlq.errors.partition": "3",
        "__dlq.errors.offset": "7",
        "__dlq.errors.timestamp": "1600000000000",
        "__dlq.errors.group": "email",
        "__dlq.errors.delivery.count": "2",
        "retry.rounds": "0",
        "__dlq.errors.stage": "HANDLE",
        "__dlq.errors.disposition": "PERMANENT",
        "__dlq.errors.exception.class.name": "retry.errors.Reject",
        "__dlq.errors.exception.message": "gone",
        "__dlq.errors.first.timestamp": "1700",
        "__dlq.errors.first.exception.class.name": "builtins.ValueError",
        "__dlq.errors.fingerprint": told["__dlq.errors.fingerprint"],
        "dlq.id": dlq_id("email", "an-id", story, b"value"),
        "dlq.replay.count": "0",
    }


@given(any_headers)
def test_foreign_headers_travel_byte_equal_in_place_and_no_name_of_ours_comes_twice(headers: Headers) -> None:
    foreign = [pair for pair in headers if not is_reserved(pair[0])]
    story = Story.read(headers, own_topic=True, origin=HERE)
    failure = replace(FAILURE, attempts=story.attempts + 1)
    for copy in (
        headers_for_tier(headers, story, failure, group="email", after_seconds=40),
        headers_for_dlq(headers, story, failure, group="email", disposition=Disposition.POISON, value=None),
    ):
        assert copy[: len(foreign)] == foreign
        ours = [name for name, _ in copy[len(foreign) :]]
        assert all(is_reserved(name) for name in ours)
        assert len(ours) == len(set(ours))


@given(any_headers)
def test_whatever_the_headers_hold_reading_them_never_raises_and_the_copy_is_the_later_one(headers: Headers) -> None:
    story = Story.read(headers, own_topic=True, origin=HERE)
    failure = replace(FAILURE, attempts=story.attempts + 1)
    copy = Story.read(headers_for_tier(headers, story, failure, group="email"), own_topic=True, origin=HERE)
    assert (0, 0) <= story.pair < copy.pair < (2**53, 2**53)
    assert copy.replay_count == story.replay_count


@pytest.mark.parametrize(
    "value",
    [None, b"", b"-1", b"1.5", b" 1", b"abc", b"\xff", b"9" * 19, b"9" * 400, "\N{ARABIC-INDIC DIGIT ONE}".encode()],
)
@pytest.mark.parametrize("name", ["__dlq.errors.delivery.count", "retry.rounds", "dlq.replay.count"])
def test_a_counter_that_cannot_be_read_counts_as_exhausted(name: str, value: bytes | None) -> None:
    story = Story.read([*first_hop(), (name, value)], own_topic=True, origin=HERE)
    assert story.attempts == UNREADABLE
    # Not older than any copy of ours, or it would be dropped as superseded.
    assert story.pair >= (0, UNREADABLE)


def test_a_replay_after_an_unreadable_replay_count_is_the_later_one() -> None:
    story = Story.read([("dlq.replay.count", b"?")], own_topic=True, origin=HERE)
    dead = headers_for_dlq(None, story, FAILURE, group="email", disposition=Disposition.EXHAUSTED, value=None)
    count = integer(dead, "dlq.replay.count")
    assert count is not None
    replayed: Headers = [("dlq.replay.count", str(count + 1).encode())]
    assert Story.read(replayed, own_topic=True, origin=HERE).pair >= (story.replay_count + 1, 0)


def test_coordinates_that_cannot_be_read_are_this_record_s_own() -> None:
    broken = [(name, b"x" if name == "__dlq.errors.offset" else value) for name, value in first_hop()]
    assert Story.read(broken, own_topic=True, origin=HERE).origin == HERE


def test_two_copies_of_one_death_share_an_id_and_nothing_else_does() -> None:
    story = Story.read(None, own_topic=False, origin=SOURCE)
    elsewhere = replace(story, origin=story.origin._replace(offset=8))
    death = dlq_id("email", "an-id", story, b"value")
    assert death == dlq_id("email", "an-id", elsewhere, b"value")  # the relay wrote the event twice
    others = {
        dlq_id("audit", "an-id", story, b"value"),
        dlq_id("email", "other", story, b"value"),
        dlq_id("email", "an-id", story, b"valu"),
        dlq_id("email", "an-id", story, b""),
        dlq_id("email", "an-id", story, None),
        dlq_id("email", "an-id", replace(story, replay_count=1), b"value"),
        dlq_id("email", None, story, b"value"),
        dlq_id("email", None, elsewhere, b"value"),
    }
    assert len(others | {death}) == 9
