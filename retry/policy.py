"""Pure: what to do about a failure, and what a group promises about its dead letters."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from orderflow.core.errors import Misconfigured

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
