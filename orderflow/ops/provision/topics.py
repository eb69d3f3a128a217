"""Topics as the contract wants them: made when they are missing, mended where that is safe, never deleted."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from orderflow.core import clock, kafka
from orderflow.core.causes import kafka as causes
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.kafka_reach import is_hidden
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics, TopicSpec, all_specs, source_spec
from orderflow.ops.provision import cluster
from orderflow.ops.provision.problem import Problem

YEAR_MINUTES = 525_600
MISSING = "does not exist"
APPLY = "`orderflow topics apply`"
_VISIBLE_SECONDS = 30.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What `apply` did: the topics it made, the settings it mended, the topics it gave more partitions."""

    created: Sequence[str] = ()
    altered: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    grown: Sequence[str] = ()


def group_topics(settings: Settings, group: str) -> GroupTopics:
    """Return the names of a group's topics. Raises `Misconfigured` for what is no group name."""
    return GroupTopics(settings.kafka.source_topic, group, settings.worker.retry_seconds)


def specs(settings: Settings, groups: Iterable[str]) -> Sequence[TopicSpec]:
    """Return how the source topic and the topics of these groups must be."""
    limit = settings.kafka.max_message_bytes
    source = source_spec(settings.kafka.source_topic, settings.kafka.partitions, limit)
    return all_specs([group_topics(settings, name) for name in groups], source, limit)


def check(settings: Settings, groups: Sequence[str]) -> list[Problem]:
    """Return what is missing or different, for the source and these groups, and warnings about the brokers.

    Raises `Misconfigured` when no broker answers.
    """
    admin = kafka.admin(settings.kafka)
    return [*problems(settings, admin, groups), *broker_warnings(admin)]


def problems(settings: Settings, admin: AdminClient, groups: Sequence[str]) -> list[Problem]:
    """Return what is missing or different; asks only about topics, which a worker's access rights allow."""
    counts = cluster.partition_counts(admin)
    wanted = specs(settings, groups)
    return [
        *(_missing(admin, spec.name) for spec in wanted if spec.name not in counts),
        *_count_problems(settings, wanted, counts),
        *_leftover_tiers(settings, groups, counts),
        *(
            Problem(name, f"has {setting}={old}, not {new}", APPLY)
            for name, changes in _differences(admin, wanted, counts).items()
            for setting, (old, new) in changes.items()
        ),
    ]


def _missing(admin: AdminClient, topic: str) -> Problem:
    if is_hidden(admin, topic):
        mend = "give our user DESCRIBE, READ, WRITE and DESCRIBE_CONFIGS on the topics with our prefix"
        return Problem(topic, "is hidden from us, or does not exist", mend)
    return Problem(topic, MISSING, APPLY)


def apply(settings: Settings, groups: Sequence[str], *, add_partitions: bool = False) -> TopicChanges:
    """Make what is missing and mend settings; the second run changes nothing.

    `add_partitions` grows a group's own topics to the source's count: copies keep their partition
    number, so nothing moves. The source is never grown: its keys would move. Raises `Misconfigured`
    for partition counts that differ and for topics of a retry tier that the settings no longer
    have, before anything is changed, and when no broker answers.
    """
    admin = kafka.admin(settings.kafka)
    counts = cluster.partition_counts(admin)
    wanted = specs(settings, groups)
    grown = [spec for spec in wanted if add_partitions and _may_grow(settings, spec, counts)]
    in_the_way = [
        *_count_problems(settings, [spec for spec in wanted if spec not in grown], counts),
        *_leftover_tiers(settings, groups, counts),
    ]
    if in_the_way:
        raise Misconfigured("; ".join(str(problem) for problem in in_the_way))
    _grow(admin, grown)
    missing = [spec for spec in wanted if spec.name not in counts]
    # The source last: only a run that made it may choose where groups start, so it should be the
    # one that got that far.
    created = [spec.name for spec in reversed(missing) if _create(admin, spec, settings.kafka.replication_factor)]
    _await(lambda: _leaderless(admin, [*missing, *grown]), "leaders")
    altered = {
        name: {setting: new for setting, (_, new) in changes.items()}
        for name, changes in _differences(admin, wanted, counts).items()
    }
    _alter(admin, altered)
    _await(lambda: _differences(admin, wanted, altered), "new settings")
    return TopicChanges(tuple(reversed(created)), altered, tuple(spec.name for spec in grown))


def _count_problems(settings: Settings, wanted: Sequence[TopicSpec], counts: Mapping[str, int]) -> list[Problem]:
    found: list[Problem] = []
    for spec in wanted:
        has = counts.get(spec.name, spec.partitions)
        if has == spec.partitions:
            continue
        what = f"has {has} partitions, not {spec.partitions}"
        if spec.name == settings.kafka.source_topic:
            mend = f"set ORDERFLOW_KAFKA__PARTITIONS={has} (growing the topic moves keys to other partitions)"
        elif _may_grow(settings, spec, counts):
            mend = "stop the group's workers, then `orderflow topics apply --add-partitions`"
        else:
            mend = "Kafka cannot take partitions away; drain it, delete it, then `orderflow topics apply`"
        found.append(Problem(spec.name, what, mend))
    return found


def _may_grow(settings: Settings, spec: TopicSpec, counts: Mapping[str, int]) -> bool:
    return spec.name != settings.kafka.source_topic and counts.get(spec.name, spec.partitions) < spec.partitions


def _leftover_tiers(settings: Settings, groups: Iterable[str], counts: Mapping[str, int]) -> list[Problem]:
    leftover: list[Problem] = []
    for group in groups:
        names = group_topics(settings, group)
        tier = re.compile(re.escape(f"{names.group_id}.retry.") + r"(\d+)s")
        for name in sorted(counts):
            found = tier.fullmatch(name)
            if found and name not in names.tiers:
                kept = ",".join(str(seconds) for seconds in names.retry_seconds)
                mend = (
                    f"nobody would read its records; add {found[1]} back, or delete the topic yourself "
                    f"once the group has read it to its end"
                )
                leftover.append(Problem(name, f"is no tier of ORDERFLOW_WORKER__RETRY_SECONDS={kept}", mend))
    return leftover


def _differences(
    admin: AdminClient, wanted: Sequence[TopicSpec], there: Collection[str]
) -> dict[str, dict[str, tuple[str | None, str]]]:
    """Return, per topic that is `there`, each setting that differs, with its value and the right one."""
    looked_at = {spec.name: spec for spec in wanted if spec.name in there}
    actual = cluster.topic_configs(admin, looked_at)
    differences = {
        name: {
            setting: (actual[name].get(setting), right)
            for setting, right in spec.config.items()
            if actual[name].get(setting) != right
        }
        for name, spec in looked_at.items()
    }
    return {name: changes for name, changes in differences.items() if changes}


def broker_warnings(admin: AdminClient) -> list[Problem]:
    """Return what is unwise in the brokers' own settings, or that they do not show them to us."""
    try:
        configs = cluster.broker_configs(admin)
    except Misconfigured as denied:
        return [Problem("brokers", "do not show us their settings", str(denied), "warning")]
    warnings: list[Problem] = []
    for number, config in sorted(configs.items()):
        minutes = int(config.get("offsets.retention.minutes") or YEAR_MINUTES)
        if minutes < YEAR_MINUTES:
            what = f"forgets the offsets of a group that was stopped for {minutes / 1440:g} days"
            mend = f"set offsets.retention.minutes={YEAR_MINUTES} on the brokers"
            warnings.append(Problem(f"broker {number}", what, mend, "warning"))
        if config.get("auto.create.topics.enable") == "true":
            what = "makes a topic for every mistyped name"
            mend = "set auto.create.topics.enable=false on the brokers"
            warnings.append(Problem(f"broker {number}", what, mend, "warning"))
    return warnings


def _create(admin: AdminClient, spec: TopicSpec, replication_factor: int) -> bool:
    """Return whether it was us who made it; another run at the same time may have."""
    topic = NewTopic(spec.name, spec.partitions, replication_factor, config=spec.config)
    try:
        admin.create_topics([topic], request_timeout=cluster.ANSWER_SECONDS)[spec.name].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
            message = (
                f"{spec.name} cannot have {replication_factor} replicas, the cluster has fewer brokers: "
                f"set ORDERFLOW_KAFKA__REPLICATION_FACTOR"
            )
            raise Misconfigured(message) from None
        denied = causes.denial(error.args[0].code(), error.args[0].str())
        if denied:
            raise Misconfigured(f"Kafka did not create {spec.name}: {denied}") from None
        raise OrderflowError(f"Kafka did not create {spec.name}: {error.args[0].str()}") from error
    return True


def _grow(admin: AdminClient, grown: Sequence[TopicSpec]) -> None:
    if grown:
        asked = [NewPartitions(spec.name, spec.partitions) for spec in grown]
        futures = admin.create_partitions(asked, request_timeout=cluster.ANSWER_SECONDS)
        cluster.each(futures, lambda name: f"add partitions to {name}")


def _alter(admin: AdminClient, altered: Mapping[str, Mapping[str, str]]) -> None:
    if not altered:
        return
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
                for setting, value in changes.items()
            ],
        )
        for name, changes in altered.items()
    ]
    futures = admin.incremental_alter_configs(resources, request_timeout=cluster.ANSWER_SECONDS)
    cluster.each({resource.name: future for resource, future in futures.items()}, lambda name: f"mend {name}")


def _leaderless(admin: AdminClient, made: Iterable[TopicSpec]) -> list[str]:
    topics = admin.list_topics(timeout=cluster.ANSWER_SECONDS).topics
    return [
        spec.name
        for spec in made
        if spec.name not in topics
        or len(topics[spec.name].partitions) < spec.partitions
        or any(partition.leader < 0 for partition in topics[spec.name].partitions.values())
    ]


def _await(unsettled: Callable[[], Collection[str]], what: str) -> None:
    """Wait until the brokers show what the controller has agreed to: whoever comes next may look at once.

    Raises `OrderflowError` with the topics that are still `unsettled` when the time is over.
    """
    deadline = clock.monotonic() + _VISIBLE_SECONDS
    while names := unsettled():
        if clock.monotonic() > deadline:
            message = f"{what} of {', '.join(names)} not seen after {_VISIBLE_SECONDS:.0f} s: look at the brokers' logs"
            raise OrderflowError(message)
        time.sleep(_LOOK_SECONDS)
