"""What the worker's loop asks of either executor."""

from dataclasses import dataclass
from typing import Protocol

from consumers.runtime.handling import Call, Result, records_of
from consumers.runtime.lanes import Run
from consumers.runtime.record import Record

FAST_SECONDS = 0.0002
"""A handler quicker than this is not worth a thread's or a task's start of its own."""


@dataclass(slots=True, eq=False)
class Running:
    """One handler call under way; `began` are monotonic seconds, and may be moved after a standstill."""

    call: Call | None
    began: float

    @property
    def records(self) -> list[Record]:
        """The records that it is about."""
        return records_of(self.call) if self.call is not None else []


class Executor(Protocol):
    """Runs handlers. One thread, the worker's, calls all of this."""

    @property
    def busy(self) -> int:
        """How many runs were handed over and are not back."""

    def room(self) -> int:
        """Return how many more runs it would take now."""

    def start(self, runs: list[Run]) -> None:
        """Hand over runs; each of their records comes back in one result."""

    def drain(self, timeout: float = 0.0) -> list[Result]:
        """Return finished results, waiting up to `timeout` seconds for the first."""

    def running(self) -> list[Running]:
        """Return the calls under way."""

    def stop(self) -> None:
        """Let idle threads end; one that hangs is left behind, for Python cannot stop it."""
