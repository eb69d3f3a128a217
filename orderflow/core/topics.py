"""Names and settings of every topic; the only place that spells them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orderflow.core.errors import Misconfigured

GROUP_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
RESERVED_GROUP_NAMES = frozenset({"orders", "retry", "replay", "dlq"})
HEADER_ROOM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be: name, partition count and the settings that the guarantees rest on."""

    name: str
    partitions: int
    config: dict[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics of one consumer group, derived from the source topic's and the group's name.

    `retry_seconds` are the delays of its tiers, rising.
    """

    source: str
    group: str
    retry_seconds: tuple[int, ...] = (1, 5, 30)

    def __post_init__(self) -> None:
        """Refuse a name that would not fit a topic, a metric label or an ACL prefix."""
        if not GROUP_NAME.fullmatch(self.group) or self.group in RESERVED_GROUP_NAMES:
            message = (
                f"{self.group!r} is no group name: use lower-case letters, digits and hyphens (at most 31, "
                f"a letter first), and none of {', '.join(sorted(RESERVED_GROUP_NAMES))}"
            )
            raise Misconfigured(message)

    @property
    def group_id(self) -> str:
        """The Kafka `group.id`; also the prefix of all topics of this group, so one ACL covers them."""
        return f"{self.source}.{self.group}"

    @property
    def tiers(self) -> dict[str, int]:
        """Retry topic to its delay in seconds, shortest first."""
        return {f"{self.group_id}.retry.{seconds}s": seconds for seconds in self.retry_seconds}

    @property
    def replay(self) -> str:
        """Where only the replay tool writes."""
        return f"{self.group_id}.replay"

    @property
    def dlq(self) -> str:
        """The dead letters."""
        return f"{self.group_id}.dlq"

    @property
    def dlq_state(self) -> str:
        """What became of each dead letter (compacted)."""
        return f"{self.group_id}.dlq.state"

    @property
    def own(self) -> tuple[str, ...]:
        """The topics that hold nothing but this group's own pending copies."""
        return (*self.tiers, self.replay)

    @property
    def subscribed(self) -> tuple[str, ...]:
        """What a worker of this group reads."""
        return (self.source, *self.own)


def source_spec(source: str, partitions: int, max_message_bytes: int) -> TopicSpec:
    """Return how the source topic must be: kept for ever, the broker's own clock."""
    return TopicSpec(
        source,
        partitions,
        {
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            "compression.type": "lz4",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(max_message_bytes),
        },
    )


def group_specs(topics: GroupTopics, partitions: int, max_message_bytes: int) -> Sequence[TopicSpec]:
    """Return how a group's own topics must be.

    Their message limit is the source's and 64 KiB, so that a copy with all its headers always fits.
    """
    kept = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(max_message_bytes + HEADER_ROOM_BYTES),
    }
    state = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    return [
        *(TopicSpec(name, partitions, kept) for name in (*topics.own, topics.dlq)),
        TopicSpec(topics.dlq_state, 1, state),
    ]


def all_specs(groups: Iterable[GroupTopics], source: TopicSpec, max_message_bytes: int) -> Sequence[TopicSpec]:
    """Return the source's and every group's topics."""
    return [source, *(spec for group in groups for spec in group_specs(group, source.partitions, max_message_bytes))]
