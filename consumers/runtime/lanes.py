"""Pure: what may run now. One at a time per key, in offset order, and who waits until when."""

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from math import inf
from operator import attrgetter
from typing import Literal

from consumers.runtime.record import Place, Record
from orderflow.core.holds import HoldReason

Run = list[Record]


@dataclass(slots=True, eq=False)
class _Lane:
    """The records of one key that has more to say than "one record, nothing behind it".

    `ahead` is how many of its records are out: with a handler, or alone in the ready queue.
    """

    name: Hashable
    queue: deque[Record] = field(default_factory=deque)
    ahead: int = 0
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

    Most keys have one record at a time: those have no lane of their own, only their name is taken.
    """

    def __init__(self, by: Literal["key", "partition", "none"], *, run_records: int = 1) -> None:
        self._by = by
        self._run_records = run_records
        self._lanes: dict[Hashable, _Lane | None] = {}  # None: one record, ready or out
        self._ready: deque[_Lane | Record] = deque()
        self._ready_first: deque[_Lane | Record] = deque()  # has waited for its time already
        self._timed: list[tuple[float, int, Record | _Lane]] = []
        self._order = count()
        self._reasons: Counter[HoldReason] = Counter()
        self._not_due = 0
        self._waiting = 0

    def add(self, record: Record, now: float) -> None:
        """Take in a record that was just delivered."""
        self.add_all([record], now)

    def add_all(self, records: Sequence[Record], now: float) -> None:
        """Take in records that were just delivered, in their order."""
        self._waiting += len(records)
        if self._by == "partition":
            self._add_batches(records, now)
            return
        for record in records:
            if record.due > now:
                self._wait_until_due(record)
            else:
                self._enqueue(record)

    def take(self, now: float, runs: int) -> list[Run]:
        """Return up to `runs` runs that may start; their lanes are closed until each record is done or held."""
        self._wake_due(now)
        taken: list[Run] = []
        while (ready := self._ready_first or self._ready) and len(taken) < runs:
            item = ready.popleft()
            if isinstance(item, Record):
                run = [item]
            else:
                item.is_ready = False
                if not item.queue or item.ahead or item.reason is not None:
                    continue
                run = _first_of(item.queue, self._run_records)
                item.ahead = len(run)
            self._waiting -= len(run)
            run[0].assignment.out += len(run)
            taken.append(run)
        return taken

    def done(self, record: Record) -> None:
        """Let the lane go on when its whole run is back; a record that was never in a lane is ignored."""
        if not record.unreadable:
            self.done_all([record])

    def done_all(self, records: Sequence[Record]) -> None:
        """Let go of records of one partition that were taken here."""
        records[0].assignment.out -= len(records)
        if self._by == "partition":
            self._back(self._lanes[records[0].place], len(records))
            return
        lanes = self._lanes
        for record in records:
            lane = lanes[record.lane]
            if lane is None:
                del lanes[record.lane]
            else:
                self._back(lane, 1)

    def hold(self, record: Record, until: float, reason: HoldReason) -> None:
        """Put a taken record back to the head of its lane, which waits until `until` (`inf`: for `wake`)."""
        record.assignment.out -= 1
        name = self._name(record)
        lane = self._lanes[name]
        if lane is None:
            lane = self._lanes[name] = _Lane(name, ahead=1)
        lane.returned.append(record)
        self._waiting += 1
        if until >= lane.held_until or lane.reason is None:
            self._set_reason(lane, reason)
            lane.held_until = until
        self._back(lane, 1)

    def wake(self, record: Record) -> None:
        """End the hold of a record's lane now."""
        lane = self._lanes.get(self._name(record))
        if lane is not None and lane.reason is not None:
            self._set_reason(lane, None)
            self._offer(lane)

    def take_this(self, record: Record) -> bool:
        """Take one held record past its lane's hold; False when it was dropped meanwhile."""
        lane = self._lanes.get(self._name(record))
        if lane is None or lane.ahead or not lane.queue or lane.queue[0] is not record:
            return False
        lane.queue.popleft()
        self._waiting -= 1
        self._set_reason(lane, None)
        lane.ahead = 1
        record.assignment.out += 1
        return True

    def drop(self, places: Iterable[Place]) -> None:
        """Forget all waiting records of partitions that are no longer ours; running ones stay until they are done."""
        gone = set(places)
        self._ready_first = self._without(self._ready_first, gone)
        self._ready = self._without(self._ready, gone)
        for lane in list(self._lanes.values()):
            if lane is None:
                continue
            before = len(lane.queue) + len(lane.returned)
            lane.queue = deque(r for r in lane.queue if r.place not in gone)
            lane.returned = [r for r in lane.returned if r.place not in gone]
            self._waiting -= before - len(lane.queue) - len(lane.returned)
            if not lane.queue and not lane.returned:
                self._set_reason(lane, None)
            self._offer(lane)
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
        return record.assignment.place if self._by == "partition" else record.lane

    def _add_batches(self, records: Sequence[Record], now: float) -> None:
        for assignment, part in groupby(records, attrgetter("assignment")):
            batch = list(part)
            waiting = [record for record in batch if record.due > now] if assignment.own else []
            for record in waiting:
                self._wait_until_due(record)
            if len(waiting) < len(batch):
                self._add_together([record for record in batch if record.due <= now] if waiting else batch)

    def _wait_until_due(self, record: Record) -> None:
        self._not_due += 1
        heapq.heappush(self._timed, (record.due, next(self._order), record))

    def _add_together(self, records: Sequence[Record]) -> None:
        """Take in records of one partition, none of which has to wait."""
        name = records[0].place
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
        lane.queue.extend(records)
        self._offer(lane, first=records[0].assignment.own)

    def _enqueue(self, record: Record) -> None:
        if self._by == "partition":
            self._add_together([record])
            return
        key = record.message.key() if self._by == "key" else None
        assignment = record.assignment
        name = record.lane = (assignment.place, record.offset) if key is None else (assignment.partition, key)
        # A copy has had its delay: it takes the next free slot, before the backlog of the source.
        ready = self._ready_first if assignment.own else self._ready
        if name not in self._lanes:
            self._lanes[name] = None
            ready.append(record)
            return
        lane = self._lanes[name]
        if lane is None:
            lane = self._lanes[name] = _Lane(name, ahead=1)
        lane.queue.append(record)
        if not lane.ahead:
            self._offer(lane, first=assignment.own)

    def _offer(self, lane: _Lane, *, first: bool = False) -> None:
        if lane.queue and not lane.ahead and lane.reason is None:
            if not lane.is_ready:
                lane.is_ready = True
                (self._ready_first if first else self._ready).append(lane)
        elif not lane.queue and not lane.ahead and not lane.returned:
            self._set_reason(lane, None)
            self._lanes.pop(lane.name, None)

    def _back(self, lane: _Lane | None, records: int) -> None:
        """Note that taken records of a lane are back; when all are, it goes on."""
        assert lane is not None  # noqa: S101 - a lane with a run, or records held, stands by itself
        lane.ahead -= records
        if lane.ahead:
            return
        if lane.returned:
            lane.returned.sort(key=lambda r: (r.topic, r.offset))
            lane.queue.extendleft(reversed(lane.returned))
            lane.returned = []
            if lane.reason is not None and lane.held_until < inf:
                heapq.heappush(self._timed, (lane.held_until, next(self._order), lane))
        self._offer(lane)

    def _without(self, ready: deque[_Lane | Record], gone: set[Place]) -> deque[_Lane | Record]:
        """Return a ready queue without the single records of partitions that went."""
        kept: deque[_Lane | Record] = deque()
        for item in ready:
            if isinstance(item, _Lane) or item.place not in gone:
                kept.append(item)
                continue
            self._waiting -= 1
            lane = self._lanes[item.lane]
            if lane is None:
                del self._lanes[item.lane]
            else:
                lane.ahead -= 1  # offered below, with all lanes
        return kept

    def _wake_due(self, now: float) -> None:
        while self._timed and self._timed[0][0] <= now:
            _, _, what = heapq.heappop(self._timed)
            if isinstance(what, Record):
                self._not_due -= 1
                self._enqueue(what)
            elif what.reason is not None and what.held_until <= now and not what.ahead:
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


def _first_of(queue: deque[Record], most: int) -> Run:
    if len(queue) > most:
        return [queue.popleft() for _ in range(most)]
    run = list(queue)
    queue.clear()
    return run
