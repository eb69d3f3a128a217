"""Pure: where each group stands, from offsets alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orderflow.core.topics import GroupTopics

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Standing:
    """One group: records processed, waiting for a retry, dead, and not read yet; age of the oldest unsettled one."""

    group: str
    processed: int
    waiting: int
    dead: int
    lag: int
    oldest_seconds: float | None

    @property
    def drained(self) -> bool:
        """Whether nothing is pending anywhere."""
        return not (self.waiting or self.lag)


def standing(
    topics: GroupTopics,
    committed: Offsets,
    ends: Offsets,
    appended_ms: Callable[[tuple[str, int], int], int | None],
    now_ms: int,
) -> Standing:
    """Return where a group stands.

    `appended_ms` tells when the record at an offset first stood in the source topic, in epoch
    milliseconds, or None for one that is not known yet.
    """
    done = sum(committed.get(place, 0) for place in ends if place[0] in topics.subscribed)
    # A copy is committed where it came from, so what moved on is not processed.
    moved = sum(end for (topic, _), end in ends.items() if topic in topics.own)
    dead = sum(end for (topic, _), end in ends.items() if topic == topics.dlq)
    unsettled = {
        place: max(0, end - committed.get(place, 0)) for place, end in ends.items() if place[0] in topics.subscribed
    }
    ages = [
        now_ms - appended
        for place, count in unsettled.items()
        if count and (appended := appended_ms(place, committed.get(place, 0))) is not None
    ]
    return Standing(
        group=topics.group,
        processed=max(0, done - moved - dead),
        waiting=sum(count for (topic, _), count in unsettled.items() if topic in topics.own),
        dead=dead,
        lag=sum(count for (topic, _), count in unsettled.items() if topic == topics.source),
        oldest_seconds=max(0.0, max(ages) / 1000) if ages else None,
    )
