import smtplib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.core.holds import HoldReason
from retry.errors import HandlerError, Outage, Reject, Retry, Throttled
from retry.policy import (
    AFTER_LIMIT_SECONDS,
    Disposition,
    ToDlq,
    ToTier,
    Verdict,
    Wait,
    is_about_us,
    is_unsure,
    verdict,
)

TIERS = (1, 5, 30)


def of(error: BaseException, attempts: int = 1) -> Verdict:
    return verdict(
        error,
        attempts=attempts,
        tiers=TIERS,
        permanent=(smtplib.SMTPRecipientsRefused, UnicodeError),
        outage=(OSError, ConnectionError),
    )


class NoSuchCustomer(Reject):
    """A team's own."""


class MailServerDown(Outage):
    """A team's own."""


@pytest.mark.parametrize("error", [Retry(), RuntimeError(), KeyError("x"), HandlerError(), SystemExit(), MemoryError()])
def test_attempts_walk_through_the_tiers_and_end_among_the_dead_letters(error: BaseException) -> None:
    assert [of(error, attempts) for attempts in (1, 2, 3, 4, 5, 1_000_001)] == [
        ToTier(1),
        ToTier(5),
        ToTier(30),
        ToDlq(Disposition.EXHAUSTED),
        ToDlq(Disposition.EXHAUSTED),
        ToDlq(Disposition.EXHAUSTED),
    ]


@pytest.mark.parametrize("attempts", [1, 3, 9])
def test_a_rejected_event_goes_to_the_dead_letters_at_once(attempts: int) -> None:
    for error in (Reject("no"), NoSuchCustomer("no"), UnicodeDecodeError("utf-8", b"", 0, 1, "no")):
        assert of(error, attempts) == ToDlq(Disposition.PERMANENT)


@pytest.mark.parametrize("attempts", [1, 4, 9])
def test_an_outage_burns_no_attempt_and_reaches_no_dead_letter(attempts: int) -> None:
    for error in (Outage(), MailServerDown(), ConnectionRefusedError(), TimeoutError()):
        assert of(error, attempts) == Wait(HoldReason.OUTAGE)


def test_a_throttled_group_rests_as_long_as_it_was_asked_to() -> None:
    assert of(Throttled(after=7), 9) == Wait(HoldReason.THROTTLED, 7.0)


def test_of_two_listed_classes_the_most_specific_decides() -> None:
    # smtplib's errors are OSErrors, and a group that lists OSError as an outage means the connection.
    assert of(smtplib.SMTPRecipientsRefused({})) == ToDlq(Disposition.PERMANENT)
    assert of(smtplib.SMTPServerDisconnected()) == Wait(HoldReason.OUTAGE)


def test_a_class_in_both_lists_is_an_outage_which_loses_nothing() -> None:
    found = verdict(KeyError(), attempts=1, tiers=TIERS, permanent=(KeyError,), outage=(KeyError,))
    assert found == Wait(HoldReason.OUTAGE)


def test_what_a_handler_says_outweighs_the_group_s_lists() -> None:
    assert verdict(Retry(), attempts=1, tiers=TIERS, permanent=(Exception,), outage=(BaseException,)) == ToTier(1)


@pytest.mark.parametrize(
    ("attempts", "after", "expected"),
    [
        (1, 0.5, ToTier(1)),
        (1, 1, ToTier(1)),
        (1, 1.01, ToTier(5)),
        (1, 6, ToTier(30)),
        (2, 0.5, ToTier(5)),
        (3, 2, ToTier(30)),
        (1, 30, ToTier(30)),
        (1, 31, ToTier(30, 31.0)),
        (3, 3_600, ToTier(30, 3_600.0)),
        (4, 3_600, ToDlq(Disposition.EXHAUSTED)),
        (1, 10**12, ToTier(30, AFTER_LIMIT_SECONDS)),
        (1, 10**400, ToTier(30, AFTER_LIMIT_SECONDS)),
    ],
)
def test_a_wait_that_was_asked_for_picks_a_longer_tier(attempts: int, after: float, expected: Verdict) -> None:
    assert of(Retry(after=after), attempts) == expected


@pytest.mark.parametrize("after", [None, 0, -5, float("nan"), float("inf"), float("-inf"), "soon", b"1", object()])
def test_a_wait_that_makes_no_sense_is_no_wait(after: float) -> None:
    assert of(Retry(after=after)) == ToTier(1)
    assert of(Throttled(after=after)) == Wait(HoldReason.THROTTLED, None)


def test_without_tiers_the_first_failure_is_the_last() -> None:
    assert verdict(Retry(after=9), attempts=1, tiers=()) == ToDlq(Disposition.EXHAUSTED)


tiers = st.lists(st.integers(1, 10_000), max_size=6, unique=True).map(sorted)


@given(tiers, st.integers(0, 20), st.none() | st.floats() | st.integers())
def test_no_retry_is_earlier_than_asked_nor_shorter_than_its_tier(
    tiers: list[int], attempts: int, after: float | None
) -> None:
    found = verdict(Retry(after=after), attempts=attempts, tiers=tiers)
    if isinstance(found, ToDlq):
        assert max(attempts, 1) > len(tiers)
        return
    assert isinstance(found, ToTier)
    assert found.seconds in tiers[max(attempts, 1) - 1 :]
    if after is not None and 0 < after <= AFTER_LIMIT_SECONDS:
        assert max(found.seconds, found.not_before_seconds or 0) >= after


@pytest.mark.parametrize("error", [Reject(), Retry(), Throttled(after=1), Outage(), NoSuchCustomer(), MailServerDown()])
def test_what_handlers_raise_on_purpose_promises_that_nothing_happened(error: HandlerError) -> None:
    assert not is_unsure(error)


@pytest.mark.parametrize("error", [RuntimeError(), OSError(), HandlerError(), KeyboardInterrupt(), TimeoutError()])
def test_any_other_error_may_follow_the_effect(error: BaseException) -> None:
    assert is_unsure(error)


def test_what_the_group_lists_promises_it_too() -> None:
    assert not is_unsure(ConnectionRefusedError(), outage=(OSError,))
    assert not is_unsure(KeyError(), permanent=(LookupError,))
    assert is_unsure(KeyError(), permanent=(OSError,), outage=(ValueError,))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Outage(), True),
        (Throttled(after=1), True),
        (Reject(), False),
        (RuntimeError(), False),
        (ConnectionRefusedError(), True),
        (FileNotFoundError(), False),
    ],
)
def test_a_permanent_class_below_one_of_outages_is_about_the_event(error: BaseException, *, expected: bool) -> None:
    assert is_about_us(error, permanent=(FileNotFoundError,), outage=(OSError,)) is expected
