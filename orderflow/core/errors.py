"""What the product raises for a person to read, and the exit code each one becomes.

    OrderflowError            1   the work failed
    ├── Misconfigured        78   something must be set up first; the sentence names the command
    ├── Refused               5   a guard said no; the sentence names its override
    ├── NothingMatched        4   the filter selected nothing
    └── PartialOrUnknown      3   some of it was done, or nobody can say whether it was

Exit code 2 (usage) is the command line's own, 130 is an interrupt.
"""

from typing import ClassVar


class OrderflowError(Exception):
    """Raised when work failed for a reason that a person can act on; the message is the sentence shown."""

    exit_code: ClassVar[int] = 1


class Misconfigured(OrderflowError):
    """Raised at start when a topic, position, policy or service is missing; names what mends it."""

    exit_code = 78


class Refused(OrderflowError):
    """Raised when a guard stops a dangerous action; names the override."""

    exit_code = 5


class NothingMatched(OrderflowError):
    """Raised when a filter or a name matched nothing."""

    exit_code = 4


class PartialOrUnknown(OrderflowError):
    """Raised when only a part was done, or when the outcome cannot be known."""

    exit_code = 3
