"""Pure: how much of a partition a worker holds, and when that is a reason not to read on."""

from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.record import Place

# How long a partition near its bound is given to make room before it is read on, and paused if need be. In that
# time fast handlers drain more than a read brings; a pause purges what was prefetched, and its end costs 50 ms.
MAKE_ROOM_SECONDS = 0.02


class Bounds:
    """Each partition's own bound of unresolved records and bytes.

    One bound over all partitions made retries up to 1.6 s late: records of one that must wait filled it
    while another's, due now, stayed unread. `read_records` is how many one read may bring.
    """

    def __init__(self, ledger: OffsetLedger, *, records: int, size: int, read_records: int) -> None:
        self._ledger = ledger
        self._records, self._size = records, size
        self._near = records - read_records
        self._touched: set[Place] = set()
        self._tight: set[Place] = set()
        self._paused: set[Place] = set()

    def delivered(self, place: Place) -> None:
        """Note that a read brought records of a partition."""
        self._touched.add(place)

    def is_tight(self) -> bool:
        """Say whether another read could take a partition over its bound."""
        self._tight = {place for place in self._tight if self._ledger.held(place)[0] > self._near}
        return bool(self._tight)

    def to_pause(self) -> list[Place]:
        """Return the partitions that this read took over their bound, and take them as paused."""
        over = []
        for place in self._touched - self._paused:
            records, size = self._ledger.held(place)
            if records > self._near:
                self._tight.add(place)
            if records > self._records or size > self._size:
                over.append(place)
        self._touched.clear()
        self._paused.update(over)
        self._tight.difference_update(over)
        return over

    def to_resume(self) -> list[Place]:
        """Return the paused partitions that hold less than half of their bound, and take them as resumed."""
        under = [place for place in self._paused if self._has_room(place)]
        self._paused.difference_update(under)
        return under

    def forget(self, place: Place) -> None:
        """Start anew with a partition that was assigned, or went."""
        for places in (self._touched, self._tight, self._paused):
            places.discard(place)

    def _has_room(self, place: Place) -> bool:
        records, size = self._ledger.held(place)
        return records <= self._records // 2 and size <= self._size // 2
