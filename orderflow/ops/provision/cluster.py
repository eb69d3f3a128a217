"""What the cluster says, as plain values; each call waits for the brokers' answer."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupState, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from orderflow.core import clock
from orderflow.core.causes import kafka as causes
from orderflow.core.errors import Misconfigured, OrderflowError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

ANSWER_SECONDS = 15.0
# A new cluster makes the topic of its coordinators at the first question; on a machine with two busy cores that took
# longer than one answer may, and what the client then says is that it timed out.
FIRST_COORDINATOR_SECONDS = 60.0
_AGAIN_SECONDS = 0.1
_NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,  # noqa: SLF001 - what librdkafka calls its own codes
)
NO_OFFSET = -1  # what ListOffsets answers for a time after the last record


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as its coordinator sees it. `members` are client ids with their hosts."""

    state: str
    members: Sequence[str]


def answer(future: "Future[T]", what: str) -> T:
    """Return what the brokers answered.

    Raises `OrderflowError`, saying `what` could not be done and why; `Misconfigured` when we lack the right.
    """
    try:
        return future.result(timeout=ANSWER_SECONDS + 5)
    except KafkaException as error:
        failed = error.args[0]
        denied = causes.denial(failed.code(), failed.str())
        if denied:
            raise Misconfigured(f"Kafka did not {what}: {denied}") from error
        raise OrderflowError(f"Kafka did not {what}: {failed.str()}") from error
    except TimeoutError as error:
        raise OrderflowError(f"Kafka did not {what} within {ANSWER_SECONDS:.0f} s") from error


def partition_counts(admin: AdminClient) -> dict[str, int]:
    """Return each topic's number of partitions."""
    try:
        topics = admin.list_topics(timeout=ANSWER_SECONDS).topics
    except KafkaException as error:
        raise OrderflowError(f"Kafka did not list its topics: {error.args[0].str()}") from error
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}


def topic_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the effective settings of topics that exist."""
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    return _configs(admin, asked) if asked else {}


def broker_configs(admin: AdminClient) -> dict[str, dict[str, str]]:
    """Return the effective settings of every broker, by its id."""
    brokers = admin.list_topics(timeout=ANSWER_SECONDS).brokers
    return _configs(admin, [ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in brokers])


def _configs(admin: AdminClient, asked: list[ConfigResource]) -> dict[str, dict[str, str]]:
    answers = admin.describe_configs(asked, request_timeout=ANSWER_SECONDS)
    return {
        resource.name: {
            name: entry.value for name, entry in answer(future, f"show the settings of {resource.name}").items()
        }
        for resource, future in answers.items()
    }


def group_states(admin: AdminClient, group_ids: Sequence[str]) -> dict[str, GroupState]:
    """Return the state of each group; one that Kafka does not know is `UNKNOWN`, not an error.

    A group without members and offsets and one that never was look alike: the broker answers DEAD for both.
    Waits while a group has no coordinator, as on a cluster that has had no group yet.
    """
    until = clock.monotonic() + FIRST_COORDINATOR_SECONDS
    while True:
        try:
            return _group_states(admin, group_ids)
        except OrderflowError as error:
            if not _because_of(error, _NO_COORDINATOR) or clock.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)


def _group_states(admin: AdminClient, group_ids: Sequence[str]) -> dict[str, GroupState]:
    futures = admin.describe_consumer_groups(list(group_ids), request_timeout=ANSWER_SECONDS)
    states: dict[str, GroupState] = {}
    for group_id, future in futures.items():
        told = answer(future, f"describe the group {group_id}")
        state = "UNKNOWN" if told.state is ConsumerGroupState.DEAD else told.state.name
        states[group_id] = GroupState(state, [f"{member.client_id} at {member.host}" for member in told.members])
    return states


def committed(config: Mapping[str, Any], group_id: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the committed offset of each partition of the topic that has one.

    Asked by a consumer that never joins: an admin client whose request about a group timed out ends the process
    when the coordinator's address comes late (an assertion in `rdkafka_queue.h`, librdkafka 2.16). Raises
    `OrderflowError` when the broker does not tell.
    """
    asked = [Partition(topic, number) for number in range(partitions)]
    consumer = Consumer({**config, "group.id": group_id, "enable.auto.commit": False})
    try:
        told = consumer.committed(asked, timeout=ANSWER_SECONDS)
    except KafkaException as error:
        raise OrderflowError(
            f"Kafka did not show the offsets of the group {group_id}: {error.args[0].str()}"
        ) from error
    finally:
        consumer.close()
    found: dict[int, int] = {}
    for position in told:
        if position.error is not None:
            raise OrderflowError(f"Kafka did not show the offset of {position.topic}: {position.error.str()}")
        if position.offset >= 0:
            found[position.partition] = position.offset
    return found


def offsets(admin: AdminClient, topic: str, partitions: Iterable[int], at: OffsetSpec) -> dict[int, int]:
    """Return the offset of each partition `at` its start, its last stable end, or a time.

    `NO_OFFSET` stands for a time after the last record. Waits while a partition has no leader, as
    right after the topic was made.
    """
    asked: Mapping[Partition, OffsetSpec] = {Partition(topic, number): at for number in partitions}
    if not asked:
        return {}
    until = clock.monotonic() + ANSWER_SECONDS
    while True:
        futures: Mapping[Partition, Future[Any]] = admin.list_offsets(
            dict(asked), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
        )
        try:
            return {
                partition.partition: answer(future, f"show the offsets of {topic}").offset
                for partition, future in futures.items()
            }
        except OrderflowError as error:
            if not _because_of(error, _NO_LEADER) or clock.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)


def delete_below(admin: AdminClient, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete the records of each partition that lie below its offset. Raises as `answer` does."""
    if not offsets:
        return
    asked = [Partition(topic, number, offset) for number, offset in offsets.items()]
    futures = admin.delete_records(asked, request_timeout=ANSWER_SECONDS, operation_timeout=ANSWER_SECONDS)
    for partition, future in futures.items():
        answer(future, f"delete records of {topic}, partition {partition.partition}")


def _because_of(error: OrderflowError, codes: Sequence[int]) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in codes


def each(futures: "Mapping[str, Future[None]]", what: Callable[[str], str]) -> None:
    """Wait for all of them. Raises `OrderflowError` for the first that failed."""
    for name, future in futures.items():
        answer(future, what(name))
