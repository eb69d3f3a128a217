"""What a check finds."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it must be: where, what is wrong, and what mends it.

    A `warning` stops nothing; an `error` keeps workers from starting.
    """

    where: str
    what: str
    mend: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """Return the sentence for a person."""
        return f"{self.where} {self.what}: {self.mend}"
