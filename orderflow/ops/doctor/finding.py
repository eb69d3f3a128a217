"""What a check says."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How it stands, worst last."""

    OK = "ok"
    SKIPPED = "skipped"  # what it needs is not there, or it cannot be told without side effects
    WARNING = "warning"  # works, and will surprise somebody
    UNKNOWN = "unknown"  # it gave no answer in time
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so, and for all but OK what mends it (or why it was skipped)."""

    state: State
    what: str
    mend: str = ""


def ok(what: str) -> Finding:
    """Return that all is well."""
    return Finding(State.OK, what)


def warning(what: str, mend: str) -> Finding:
    """Return that it works and should be mended."""
    return Finding(State.WARNING, what, mend)


def failed(what: str, mend: str = "") -> Finding:
    """Return that it does not work; an empty `mend` stands in `what` already."""
    return Finding(State.FAILED, what, mend)


def skipped(why: str) -> Finding:
    """Return that nobody looked."""
    return Finding(State.SKIPPED, why)
