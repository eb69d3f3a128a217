"""Pure: what to do about a failure, and what a group promises about its dead letters.

A verdict is what to do, an outcome is what happened; there is no third word.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from orderflow.core.errors import Misconfigured
from orderflow.core.holds import HoldReason
from retry.errors import HandlerError, Outage, Reject, Retry, Throttled

AFTER_LIMIT_SECONDS = 24 * 3600.0
"""The longest wait that a handler may ask for: below the life of a claim (72 h), so that the claim outlives it."""

DISCARDED = "discarded"
APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class DlqPolicy:
    """Who is told about a dead letter, when it may be replayed, and when it may be deleted.

    Raises `Misconfigured` when a rule is empty: a dead letter that nobody answers for is a lost event.
    """

    alert: str
    replay: str
    delete_when: AbstractSet[str]
    keep_days: int
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse an empty rule."""
        if not self.alert.strip() or not self.replay.strip():
            raise Misconfigured("a DlqPolicy needs `alert` (who is told) and `replay` (when a replay is right)")
        if not self.delete_when or not self.delete_when <= {DISCARDED, APPLIED}:
            raise Misconfigured("DlqPolicy.delete_when is a set of DISCARDED and APPLIED, not empty")
        if self.keep_days < 1:
            raise Misconfigured("DlqPolicy.keep_days must be at least 1")


class Disposition(StrEnum):
    """Why an event lies among the dead letters."""

    EXHAUSTED = "EXHAUSTED"  # failed in every tier
    PERMANENT = "PERMANENT"  # the handler rejected it
    POISON = "POISON"  # cannot be read
    POISON_CRASH = "POISON_CRASH"  # took the process with it three times
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"  # a schema that this program does not know, past the grace time
    MISMATCH = "MISMATCH"  # the event id of another event; never replayed
    KEY_BLOCKED = "KEY_BLOCKED"  # an earlier event of its key is dead


class Stage(StrEnum):
    """Where in the life of a record it failed."""

    CLAIM = "CLAIM"
    DECODE = "DECODE"
    VALIDATE = "VALIDATE"
    HANDLE = "HANDLE"
    ORDER = "ORDER"


@dataclass(frozen=True, slots=True)
class ToTier:
    """Copy it to the retry topic with this delay; hold the copy until `not_before_seconds` when that is longer."""

    seconds: int
    not_before_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ToDlq:
    """Copy it to the dead letters."""

    disposition: Disposition


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold it where it is and burn no attempt; `seconds` None means the caller's own back-off."""

    reason: HoldReason
    seconds: float | None = None


Verdict = ToTier | ToDlq | Wait

ErrorClasses = tuple[type[BaseException], ...]


def verdict(
    error: BaseException,
    *,
    attempts: int,
    tiers: Sequence[int],
    permanent: ErrorClasses = (),
    outage: ErrorClasses = (),
) -> Verdict:
    """Return what to do about a handler that raised.

    `attempts` counts this one, `tiers` are the delays in seconds, `permanent` and `outage` the classes
    that the group lists. Of classes listed twice the most specific counts: `SMTPRecipientsRefused` may be
    permanent beside an outage of `OSError`, its base. The same class in both lists is an outage, which
    loses nothing.
    """
    meant = _meaning(error, permanent, outage)
    if meant is Reject:
        return ToDlq(Disposition.PERMANENT)
    if meant is Outage:
        return Wait(HoldReason.OUTAGE)
    if meant is Throttled:
        return Wait(HoldReason.THROTTLED, _seconds(getattr(error, "after", None)))
    left = tiers[max(attempts, 1) - 1 :]
    if not left:
        return ToDlq(Disposition.EXHAUSTED)
    return _tier(left, _seconds(getattr(error, "after", None)) if meant is Retry else None)


def is_unsure(error: BaseException, *, permanent: ErrorClasses = (), outage: ErrorClasses = ()) -> bool:
    """Say whether the effect may be there although the handler raised.

    Only `Reject`, `Retry`, `Throttled`, `Outage` and what the group lists as such promise that it is
    not; an arbitrary error may follow the effect.
    """
    return _meaning(error, permanent, outage) is None


def is_about_us(error: BaseException, *, permanent: ErrorClasses = (), outage: ErrorClasses = ()) -> bool:
    """Say whether the error would have come whatever the event was: an outage, or a limit that we are over."""
    return _meaning(error, permanent, outage) in (Outage, Throttled)


def _meaning(error: BaseException, permanent: ErrorClasses, outage: ErrorClasses) -> type[HandlerError] | None:
    """Return which of our four classes the error is or stands for; the most specific class decides."""
    for cls in type(error).__mro__:
        if cls in (Outage, Throttled, Retry, Reject):
            return cls
        if cls in outage:
            return Outage
        if cls in permanent:
            return Reject
    return None


def _tier(left: Sequence[int], after: float | None) -> ToTier:
    """Return the first of the tiers left that is long enough; over the longest, that one and the rest of the wait."""
    if after is None:
        return ToTier(left[0])
    return next((ToTier(seconds) for seconds in left if seconds >= after), ToTier(left[-1], after))


def _seconds(asked: object) -> float | None:
    """Return a wait that a handler asked for, at most a day; None for what is no time to wait."""
    if not isinstance(asked, int | float) or not 0 < asked < math.inf:
        return None
    return float(min(asked, AFTER_LIMIT_SECONDS))
