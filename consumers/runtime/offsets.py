"""Pure: what a worker may commit. The broker fences nothing; this ledger is the only fence."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class _Assigned:
    epoch: int
    next_offset: int | None  # one beyond the highest delivered offset, where it started before the first
    floor: int  # never commit below: where the assignment started, then the highest value ever sent
    unresolved: dict[int, int] = field(default_factory=dict)  # offset -> bytes
    held_bytes: int = 0
    sent: int | None = None  # the value of the last commit that is acknowledged or under way

    def committable(self, position: int) -> int | None:
        if self.unresolved:
            return max(min(self.unresolved), self.floor)
        # Nothing in flight or held: the consumer's position has passed trailing transaction
        # markers, which nobody delivers. It is negative before the first fetch.
        known = self.next_offset if self.next_offset is not None else -1
        best = max(known, position)
        return best if best >= self.floor and best >= 0 else None


class OffsetLedger:
    """Delivered and unresolved offsets per (topic, partition, assignment epoch).

    Offsets have holes (compaction, transaction markers), so "contiguous" means: no *delivered* offset
    below is unresolved. An acknowledgement of an old epoch is ignored; commits never go backwards
    and never beyond what was delivered.
    """

    def __init__(self) -> None:
        self._assigned: dict[Place, _Assigned] = {}

    def assign(self, place: Place, epoch: int, committed: int | None) -> None:
        """Start an assignment at the group's committed offset (None: unknown)."""
        self._assigned[place] = _Assigned(epoch, committed, committed or 0, sent=committed)

    def revoke(self, place: Place) -> None:
        """End an assignment: nothing of it is committed any more."""
        self._assigned.pop(place, None)

    def places(self) -> list[Place]:
        """Return what is assigned now."""
        return list(self._assigned)

    def epoch(self, place: Place) -> int | None:
        """Return the epoch of the present assignment, None when it is not ours."""
        assigned = self._assigned.get(place)
        return assigned.epoch if assigned else None

    def deliver(self, place: Place, offset: int, size: int) -> bool:
        """Note a delivered record that must be resolved. Returns False for one that is in hand already.

        One below the highest is taken too: what was done is for the claims to say, and a record that is
        taken for a repetition by its offset alone would be lost if it is none.
        """
        assigned = self._assigned[place]
        if offset in assigned.unresolved:
            return False
        assigned.next_offset = max(offset + 1, assigned.next_offset or 0)
        assigned.unresolved[offset] = size
        assigned.held_bytes += size
        return True

    def deliver_all(self, place: Place, offsets: Sequence[int], sizes: Sequence[int]) -> Sequence[int]:
        """Note delivered records as `deliver` does; returns the offsets that were not in hand already."""
        assigned = self._assigned[place]
        if not assigned.unresolved.keys().isdisjoint(offsets) or len(set(offsets)) != len(offsets):
            return [offset for offset, size in zip(offsets, sizes, strict=True) if self.deliver(place, offset, size)]
        assigned.unresolved.update(zip(offsets, sizes, strict=True))
        assigned.next_offset = max(max(offsets) + 1, assigned.next_offset or 0)
        assigned.held_bytes += sum(sizes)
        return offsets

    def pass_over(self, place: Place, offset: int) -> None:
        """Note a delivered record that is done at once."""
        assigned = self._assigned[place]
        assigned.next_offset = max(offset + 1, assigned.next_offset or 0)

    def resolve(self, place: Place, offset: int, epoch: int) -> bool:
        """Note that a record needs nothing more. Returns False, changing nothing, when its assignment has ended."""
        assigned = self._assigned.get(place)
        if assigned is None or assigned.epoch != epoch:
            return False
        assigned.held_bytes -= assigned.unresolved.pop(offset, 0)
        return True

    def resolve_all(self, place: Place, offsets: Iterable[int], epoch: int) -> bool:
        """Note that records of one partition need nothing more, as `resolve` does."""
        assigned = self._assigned.get(place)
        if assigned is None or assigned.epoch != epoch:
            return False
        resolve = assigned.unresolved.pop
        assigned.held_bytes -= sum([resolve(offset, 0) for offset in offsets])
        return True

    def held(self, place: Place) -> tuple[int, int]:
        """Return how many delivered records of a partition are unresolved, and their bytes."""
        assigned = self._assigned.get(place)
        return (len(assigned.unresolved), assigned.held_bytes) if assigned else (0, 0)

    def to_commit(
        self, position: Callable[[Place], int], *, again: bool = False, only: Iterable[Place] | None = None
    ) -> Mapping[Place, int]:
        """Return the offsets to commit now, and take them as sent.

        `position` gives the consumer's position of a partition (negative: unknown). `again` repeats
        prefixes that were sent before: a zombie's commit may have set the group back.
        """
        due: dict[Place, int] = {}
        for place in self._assigned if only is None else only:
            assigned = self._assigned.get(place)
            if assigned is None:
                continue
            offset = assigned.committable(-1 if assigned.unresolved else position(place))
            if offset is None or (offset == assigned.sent and not again):
                continue
            assigned.floor = offset
            assigned.sent = offset
            due[place] = offset
        return due

    def commit_unknown(self, places: Iterable[Place]) -> None:
        """Forget what a failed commit sent: unknown for every partition in it, so the *current* prefixes go again."""
        for place in places:
            if place in self._assigned:
                self._assigned[place].sent = None
