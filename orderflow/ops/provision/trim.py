"""Deletes records of a group's own topics that the group has resolved: what lies below its committed offset.

Own topics (retry tiers, replay) keep everything until this runs: their copies are the only ones of pending work. Below
the committed offset all are resolved: done, or safely in a later topic. The source and the dead letters are never
touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from confluent_kafka.admin import OffsetSpec

from orderflow.core import kafka
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster
from orderflow.ops.provision.topics import group_topics

State = Literal["trim", "empty", "no position", "beyond the end"]


@dataclass(frozen=True, slots=True)
class Share:
    """One partition: its first record, the group's committed offset, the end of the log, and what is to be done.

    `trim`: offsets from `start` up to `committed` go. `empty`: nothing is below the committed offset. `no position`:
    the group has committed nothing here, so nothing is known to be resolved. `beyond the end`: the offset is of
    another log (the topic was made anew), so it tells nothing.
    """

    group: str
    topic: str
    partition: int
    start: int
    committed: int | None
    end: int

    @property
    def state(self) -> State:
        """What is to be done with it."""
        if self.committed is None:
            return "no position"
        if self.committed > self.end:
            return "beyond the end"
        return "trim" if self.committed > self.start else "empty"

    @property
    def offsets(self) -> int:
        """How many offsets go; where a transaction was aborted, fewer records."""
        return self.committed - self.start if self.committed is not None and self.state == "trim" else 0


def shares(
    group: str, topic: str, starts: Mapping[int, int], committed: Mapping[int, int], ends: Mapping[int, int]
) -> list[Share]:
    """Return what is to be done with each partition that has a start and an end."""
    return [
        Share(group, topic, number, starts[number], committed.get(number), ends[number]) for number in sorted(starts)
    ]


def trim(settings: Settings, groups: Sequence[str], *, dry_run: bool = False) -> list[Share]:
    """Delete what the groups have resolved in their own topics; return every partition as it was before.

    May run beside the groups' workers: they read at or above their committed offset. A topic that does not exist is
    passed over. With `dry_run` nothing is deleted. Raises `Misconfigured` when no broker answers or a right is
    missing, `OrderflowError` when a broker refuses.
    """
    admin = kafka.admin(settings.kafka)
    connection = kafka.connection(settings.kafka)
    counts = cluster.partition_counts(admin)
    found: list[Share] = []
    for group in groups:
        topics = group_topics(settings, group)
        for topic in topics.own:
            partitions = range(counts.get(topic, 0))
            # Committed first: it only grows, so nothing above it can go.
            committed = cluster.committed(connection, topics.group_id, topic, len(partitions)) if partitions else {}
            starts = cluster.offsets(admin, topic, partitions, OffsetSpec.earliest())
            ends = cluster.offsets(admin, topic, partitions, OffsetSpec.latest())
            seen = shares(group, topic, starts, committed, ends)
            if not dry_run:
                going = {x.partition: x.committed for x in seen if x.state == "trim" and x.committed is not None}
                cluster.delete_below(admin, topic, going)
            found += seen
    return found
