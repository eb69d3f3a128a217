"""What must be true whatever happens, and what the walk must remember to see it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consumers.runtime.offsets import Place
from tests.model.system import System

if TYPE_CHECKING:
    from tests.model.broker import Assigned

Who = tuple[str, bytes]  # event id, bytes


class Broken(Exception):
    """A promise is broken; the message names it."""


class Promises:
    """The truth about each event that no process and no Redis can forget."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.forgotten = False  # Redis has lost claims: only effects with an inbox must stay single
        self.resolved: set[tuple[Place, int]] = set()
        self.completed: set[str] = set()
        self.applied: dict[str, list[bytes]] = defaultdict(list)  # the bytes that had their effect
        self.row: dict[str, str] = {}  # the outside effect's own record: "sending", then "sent"
        self.runs: Counter[tuple[str, int]] = Counter()  # by event and replay count
        self.excused: Counter[str] = Counter()  # runs that a crash or an outage has cost
        self.windows: Counter[str] = Counter()  # moments in which an outside effect may be doubled
        self.interrupted_alone: Counter[str] = Counter()
        self.kills: Counter[tuple[str, int]] = Counter()  # processes taken by a handler since its last return
        self.ran_replay: set[tuple[str, int]] = set()

    def committing(self, place: Place, offset: int, log: Sequence[object], assigned: "Assigned | None") -> None:
        """Judge a commit when it leaves the process; what the broker makes of it is not ours."""
        if assigned is None:
            raise Broken(f"{place} is committed after its assignment has ended")
        if offset < assigned.highest:
            raise Broken(f"the commit of {place} goes back from {assigned.highest} to {offset}")
        if offset > assigned.read_to:
            raise Broken(f"the commit of {place} at {offset} is beyond what was delivered")
        for passed in range(offset):
            if log[passed] is not None and (place, passed) not in self.resolved:
                raise Broken(f"the commit of {place} at {offset} passes {passed}, which is not resolved")

    def begins(self, event: str, replay_count: int, others: Sequence[Any], *, maybe_done: bool, robbed: bool) -> None:
        """Judge the start of a handler; `others` are its runs elsewhere whose lease was never over."""
        if others and not robbed:
            raise Broken(f"{event} is run by two owners although no lease has ended")
        if event in self.completed and not (self.forgotten or robbed):
            raise Broken(f"{event} is run again after COMPLETE")
        if self.applied[event] and self.row.get(event) == "sending" and not (maybe_done or self.forgotten or robbed):
            raise Broken(f"{event} may have had its effect, and its handler is not told so")
        self.runs[event, replay_count] += 1
        self.ran_replay.add((event, replay_count))
        most = 1 + self._system.tiers + self.excused[event]
        if self.runs[event, replay_count] > most and not self.forgotten:
            raise Broken(f"{event} has {self.runs[event, replay_count]} attempts, budget and crashes allow {most}")

    def takes_effect(self, event: str, value: bytes) -> None:
        """Note an effect, and judge whether it may be there a second time."""
        self.applied[event].append(value)
        times = len(self.applied[event])
        if not self._system.outside and times > 1:
            raise Broken(f"{event} has its effect twice although it has an inbox")
        if times > 1 + self.windows[event]:
            raise Broken(f"{event} has its effect {times} times, in {self.windows[event]} windows that allow it")

    def dies_of(self, event: str, replay_count: int) -> None:
        """Note that a handler took its process with it."""
        self.kills[event, replay_count] += 1
        if self.kills[event, replay_count] > 3 and not self.forgotten:
            raise Broken(f"{event} has taken {self.kills[event, replay_count]} processes in a row")

    def called_poison(self, event: str) -> None:
        """Judge the verdict that an event kills processes: a first crash may be a neighbour's, no other."""
        if self.interrupted_alone[event] < 2 and not self.forgotten:
            alone = self.interrupted_alone[event]
            raise Broken(f"{event} is called poison; it was interrupted while it ran alone {alone} times")

    def resolves(self, place: Place, offset: int, who: Who, why: str, *, pending: bool) -> None:
        """Judge that a record needs nothing more; `pending` says that another copy of it is left, or a dead letter."""
        self.resolved.add((place, offset))
        event, value = who
        # With its claim Redis has lost which bytes were the first: other bytes of one id are then a duplicate.
        applied = value in self.applied[event] or (self.forgotten and bool(self.applied[event]))
        if not applied and not pending:
            raise Broken(f"{event} is lost: {place} at {offset} was dropped ({why}) and was the only copy")
