"""Where a group starts on the source topic: only where somebody chose.

The group's own topics (retry tiers, replay) need no choice: they hold nothing but its pending
copies, and a worker reads them from the log's start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, OffsetSpec

from orderflow.core import kafka
from orderflow.core.causes import kafka as causes
from orderflow.core.errors import Misconfigured, OrderflowError, Refused
from orderflow.core.kafka_reach import is_hidden
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster, topics

Start = Literal["earliest", "now"] | datetime


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """A group, its members, and its committed offsets on the source topic, by partition."""

    group: str
    group_id: str
    state: str
    members: Sequence[str]
    partitions: int
    committed: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def lag(self) -> int | None:
        """Records of the source topic up to its last stable offset that are not committed; None without a position.

        Committed offsets are read before the ends, so it is never negative by a race. What waits in the
        group's retry topics is not in it.
        """
        if self.without_position:
            return None
        return sum(max(0, end - self.committed[number]) for number, end in self.ends.items())

    @property
    def without_position(self) -> Sequence[int]:
        """Partitions of the source on which nobody chose a place yet."""
        return [number for number in range(self.partitions) if number not in self.committed]


def parse_start(text: str) -> Start:
    """Return `earliest`, `now`, or a moment: ISO 8601 with its offset from UTC, as in 2026-01-31T08:00Z.

    Raises `ValueError` for anything else, a moment without an offset included.
    """
    if text == "earliest":
        return "earliest"
    if text == "now":
        return "now"
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        message = f"{text} has no offset from UTC; write {text}Z or {text}+02:00"
        raise ValueError(message)
    return moment.astimezone(UTC)


def ls(settings: Settings, groups: Sequence[str], *, with_states: bool = True) -> list[GroupPositions]:
    """Return each group's positions, and its state and members unless `with_states` is off.

    Raises `Misconfigured` when no broker answers and when the source topic is missing.
    """
    admin = kafka.admin(settings.kafka)
    return _read(admin, settings, groups, with_states=with_states)


def init(
    settings: Settings,
    group: str,
    start: Start = "earliest",
    *,
    new_partitions: bool = False,
    overwrite: bool = False,
) -> Mapping[int, int]:
    """Choose where a stopped group starts on the source topic; return the offsets written, by partition.

    `new_partitions` touches only partitions without a position. Raises `Refused` when the group
    has live members, and when it has positions already unless `overwrite`; `Misconfigured` when
    the source topic is missing, when no broker answers, and for `new_partitions` of a group that never started.
    """
    admin = kafka.admin(settings.kafka)
    (now,) = _read(admin, settings, [group])
    if now.members:
        raise Refused(_has_members(group, now.members))
    if new_partitions and not now.committed:
        message = (
            f"group {group} has no position at all, so it is not its new partitions that are missing: "
            f"`orderflow groups init {group} --from earliest|now|TIME`"
        )
        raise Misconfigured(message)
    if now.committed and not (new_partitions or overwrite):
        message = (
            f"group {group} has positions on {len(now.committed)} of {now.partitions} partitions of "
            f"{settings.kafka.source_topic}; to move it add --overwrite, "
            f"and for partitions that were added --new-partitions"
        )
        raise Refused(message)
    chosen = now.without_position if new_partitions else range(now.partitions)
    offsets = _offsets_at(admin, settings.kafka.source_topic, chosen, start)
    _write(admin, now, settings.kafka.source_topic, offsets)
    return offsets


def out_of_range(settings: Settings, admin: AdminClient, now: GroupPositions) -> dict[int, tuple[int, int, int]]:
    """Return partitions whose committed offset is not in the log: committed, log start, end."""
    source = settings.kafka.source_topic
    starts = cluster.offsets(admin, source, now.committed, OffsetSpec.earliest())
    ends = cluster.offsets(admin, source, now.committed, OffsetSpec.latest())
    return {
        number: (offset, starts[number], ends[number])
        for number, offset in now.committed.items()
        if not starts[number] <= offset <= ends[number]
    }


def _read(
    admin: AdminClient, settings: Settings, groups: Sequence[str], *, with_states: bool = True
) -> list[GroupPositions]:
    source = settings.kafka.source_topic
    partitions = cluster.partition_counts(admin).get(source)
    if partitions is None:
        if is_hidden(admin, source):
            raise Misconfigured(f"the topic {source} is hidden from us: give our user DESCRIBE and READ on it")
        raise Misconfigured(f"the topic {source} does not exist: `orderflow provision`")
    ids = {group: topics.group_topics(settings, group).group_id for group in groups}
    states = cluster.group_states(admin, list(ids.values())) if ids and with_states else {}
    unasked = cluster.GroupState("", ())
    connection = kafka.connection(settings.kafka)
    committed = {group_id: cluster.committed(connection, group_id, source, partitions) for group_id in ids.values()}
    ends = cluster.offsets(admin, source, range(partitions), OffsetSpec.latest())
    return [
        GroupPositions(
            group,
            group_id,
            states.get(group_id, unasked).state,
            states.get(group_id, unasked).members,
            partitions,
            committed[group_id],
            ends,
        )
        for group, group_id in ids.items()
    ]


def _offsets_at(admin: AdminClient, source: str, chosen: Sequence[int], start: Start) -> dict[int, int]:
    if start == "earliest":
        return cluster.offsets(admin, source, chosen, OffsetSpec.earliest())
    ends = cluster.offsets(admin, source, chosen, OffsetSpec.latest())
    if start == "now":
        return ends
    assert isinstance(start, datetime)  # noqa: S101 - what is left of the union
    moment = int((start - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    found = cluster.offsets(admin, source, chosen, OffsetSpec.for_timestamp(moment))
    return {number: ends[number] if offset == cluster.NO_OFFSET else offset for number, offset in found.items()}


def _write(admin: AdminClient, now: GroupPositions, source: str, offsets: Mapping[int, int]) -> None:
    if not offsets:
        return
    asked = [Partition(source, number, offset) for number, offset in offsets.items()]
    futures = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(now.group_id, asked)], request_timeout=cluster.ANSWER_SECONDS
    )
    written = cluster.answer(futures[now.group_id], f"set the offsets of {now.group_id}")
    # A refusal stands inside each partition's result; the call itself succeeds.
    failed = {tp.partition: tp.error for tp in written.topic_partitions or [] if tp.error is not None}
    if any(error.code() == KafkaError.UNKNOWN_MEMBER_ID for error in failed.values()):
        raise Refused(_has_members(now.group, ["one that joined just now"]))
    denied = [told for error in failed.values() if (told := causes.denial(error.code(), error.str()))]
    if denied:
        raise Misconfigured(f"Kafka did not set the offsets of {now.group_id} on {source}: {denied[0]}")
    if failed:
        told = ", ".join(f"{number}: {error.str()}" for number, error in sorted(failed.items()))
        raise OrderflowError(f"Kafka did not set the offsets of {now.group_id} on {source} ({told})")


def _has_members(group: str, members: Sequence[str]) -> str:
    listed = ", ".join(members[:3]) + (" …" if len(members) > 3 else "")  # noqa: PLR2004 - enough to recognise them
    return f"group {group} is running ({len(members)} members: {listed}): stop its workers first"
