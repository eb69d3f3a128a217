"""Pure: what may run now. One at a time per key, in offset order, and who waits until when."""

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Literal

from consumers.runtime.record import Place, Record
from orderflow.core.holds import HoldReason

Run = list[Record]


@dataclass(slots=True, eq=False)
class _Lane:
    """The records of one key; `running` is out with a handler, `returned` came back to wait again."""

    name: Hashable
    queue: deque[Record] = field(default_factory=deque)
    running: set[int] = field(default_factory=set)
    returned: list[Record] = field(default_factory=list)
    held_until: float = 0.0
    reason: HoldReason | None = None
    is_ready: bool = False


class Lanes:
    """Slots are the caller's; this says which runs could use them.

    A *run* is what one handler call gets: one record, or for a batch handler up to `run_records` of
    one partition. `by` names what is ordered: records of one key, one partition's records (batches),
    or nothing. Records that are not due yet wait in a heap, their partition unpaused: pausing per
    held head made retries 474 ms late (p99), this 3 to 7 ms.
    """

    def __init__(self, by: Literal["key", "partition", "none"], *, run_records: int = 1) -> None:
        self._by = by
        self._run_records = run_records
        self._lanes: dict[Hashable, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._ready_first: deque[_Lane] = deque()  # has waited for its time already
        self._timed: list[tuple[float, int, Record | _Lane]] = []
        self._order = count()
        self._reasons: Counter[HoldReason] = Counter()
        self._not_due = 0
        self._waiting = 0

    def add(self, record: Record, now: float) -> None:
        """Take in a record that was just delivered."""
        self._waiting += 1
        if record.due > now:
            self._not_due += 1
            heapq.heappush(self._timed, (record.due, next(self._order), record))
        else:
            self._enqueue(record)

    def take(self, now: float, runs: int) -> list[Run]:
        """Return up to `runs` runs that may start; their lanes are closed until each record is done or held."""
        self._wake_due(now)
        taken: list[Run] = []
        while (ready := self._ready_first or self._ready) and len(taken) < runs:
            lane = ready.popleft()
            lane.is_ready = False
            if not lane.queue or lane.running or lane.reason is not None:
                continue
            run = [lane.queue.popleft() for _ in range(min(self._run_records, len(lane.queue)))]
            lane.running = {id(record) for record in run}
            self._waiting -= len(run)
            taken.append(run)
        return taken

    def done(self, record: Record) -> None:
        """Let the lane go on when its whole run is back; a record that was not taken from here is ignored."""
        lane = self._lanes.get(self._name(record))
        if lane is not None and id(record) in lane.running:
            self._leave(lane, record)

    def hold(self, record: Record, until: float, reason: HoldReason) -> None:
        """Put a taken record back to the head of its lane, which waits until `until` (`inf`: for `wake`)."""
        lane = self._lanes[self._name(record)]
        lane.returned.append(record)
        self._waiting += 1
        if until >= lane.held_until or lane.reason is None:
            self._set_reason(lane, reason)
            lane.held_until = until
        self._leave(lane, record)

    def wake(self, record: Record) -> None:
        """End the hold of a record's lane now."""
        lane = self._lanes.get(self._name(record))
        if lane is not None and lane.reason is not None:
            self._set_reason(lane, None)
            self._offer(lane)

    def take_this(self, record: Record) -> bool:
        """Take one held record past its lane's hold; False when it was dropped meanwhile."""
        lane = self._lanes.get(self._name(record))
        if lane is None or lane.running or not lane.queue or lane.queue[0] is not record:
            return False
        lane.queue.popleft()
        self._waiting -= 1
        self._set_reason(lane, None)
        lane.running = {id(record)}
        return True

    def drop(self, places: Iterable[Place]) -> None:
        """Forget all waiting records of partitions that are no longer ours; running ones stay until they are done."""
        gone = set(places)
        for lane in list(self._lanes.values()):
            before = len(lane.queue) + len(lane.returned)
            lane.queue = deque(r for r in lane.queue if r.place not in gone)
            lane.returned = [r for r in lane.returned if r.place not in gone]
            self._waiting -= before - len(lane.queue) - len(lane.returned)
            if not lane.queue and not lane.returned:
                self._set_reason(lane, None)
            self._forget_if_empty(lane)
        kept_timed = [t for t in self._timed if not (isinstance(t[2], Record) and t[2].place in gone)]
        dropped = len(self._timed) - len(kept_timed)
        self._not_due -= dropped
        self._waiting -= dropped
        self._timed = kept_timed
        heapq.heapify(self._timed)

    def next_time(self, now: float) -> float | None:
        """Return seconds until something becomes ready: 0.0 when something is, None when nothing will by itself."""
        if self._ready or self._ready_first:
            return 0.0
        return max(0.0, self._timed[0][0] - now) if self._timed else None

    def held(self) -> dict[HoldReason, int]:
        """Return how many lanes are held back per reason, and the records not due or behind their key."""
        held = {reason: number for reason, number in self._reasons.items() if number}
        held[HoldReason.NOT_DUE] = self._not_due
        held[HoldReason.KEY] = max(
            0, self._waiting - self._not_due - sum(self._reasons.values()) - len(self._ready) - len(self._ready_first)
        )
        return held

    def __len__(self) -> int:
        """Return how many records wait here, running ones not counted."""
        return self._waiting

    def _name(self, record: Record) -> Hashable:
        if self._by == "partition":
            return record.place
        if self._by == "none" or record.key is None:
            return (record.topic, record.partition, record.offset)
        return (record.partition, record.key)

    def _enqueue(self, record: Record) -> None:
        name = self._name(record)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
        lane.queue.append(record)
        # A copy has had its delay: it takes the next free slot, before the backlog of the source.
        self._offer(lane, first=record.pair > (0, 0))

    def _offer(self, lane: _Lane, *, first: bool = False) -> None:
        if lane.queue and not lane.running and lane.reason is None and not lane.is_ready:
            lane.is_ready = True
            (self._ready_first if first else self._ready).append(lane)
        else:
            self._forget_if_empty(lane)

    def _leave(self, lane: _Lane, record: Record) -> None:
        lane.running.discard(id(record))
        if lane.running:
            return
        if lane.returned:
            lane.returned.sort(key=lambda r: (r.topic, r.offset))
            lane.queue.extendleft(reversed(lane.returned))
            lane.returned = []
            if lane.reason is not None and lane.held_until < inf:
                heapq.heappush(self._timed, (lane.held_until, next(self._order), lane))
        self._offer(lane)

    def _wake_due(self, now: float) -> None:
        while self._timed and self._timed[0][0] <= now:
            _, _, what = heapq.heappop(self._timed)
            if isinstance(what, Record):
                self._not_due -= 1
                self._enqueue(what)
            elif what.reason is not None and what.held_until <= now and not what.running:
                self._set_reason(what, None)
                self._offer(what)

    def _set_reason(self, lane: _Lane, reason: HoldReason | None) -> None:
        if lane.reason is not None:
            self._reasons[lane.reason] -= 1
        if reason is not None:
            self._reasons[reason] += 1
        lane.reason = reason
        if reason is None:
            lane.held_until = 0.0

    def _forget_if_empty(self, lane: _Lane) -> None:
        if not lane.queue and not lane.running and not lane.returned:
            self._set_reason(lane, None)
            self._lanes.pop(lane.name, None)
