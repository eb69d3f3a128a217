"""Where groups start, on a real broker."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewPartitions

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured, Refused
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster, positions, readiness, topics

Produce = Callable[..., list[int]]


@pytest.fixture(autouse=True)
def cluster_with_topics(settings: Settings) -> None:
    topics.apply(settings, ["email"])


def committed(settings: Settings, partitions: int = 2) -> dict[int, int]:
    return cluster.committed(
        kafka.connection(settings.kafka),
        f"{settings.kafka.source_topic}.email",
        settings.kafka.source_topic,
        partitions,
    )


def test_earliest_is_the_logs_start_and_now_its_end(settings: Settings, admin: AdminClient, produce: Produce) -> None:
    source = settings.kafka.source_topic
    produce(source, 0, 5)
    deleted = admin.delete_records([Partition(source, 0, 2)])
    for done in deleted.values():
        done.result(10)

    assert positions.init(settings, "email", "earliest") == {0: 2, 1: 0}
    assert committed(settings) == {0: 2, 1: 0}
    assert positions.init(settings, "email", "now", overwrite=True) == {0: 5, 1: 0}
    assert committed(settings) == {0: 5, 1: 0}


def test_a_time_is_the_first_record_from_then_on_and_the_end_where_there_is_none(
    settings: Settings, produce: Produce
) -> None:
    source = settings.kafka.source_topic
    times = produce(source, 0, 3)
    while times[-1] == times[0]:  # the broker's clock counts in ms
        times += produce(source, 0, 1)
    first = next(number for number, at in enumerate(times) if at == times[-1])
    produce(source, 1, 4)

    start = datetime.fromtimestamp(times[-1] / 1000, UTC)
    assert positions.init(settings, "email", start)[0] == first
    later = datetime.now(UTC) + timedelta(hours=1)
    assert positions.init(settings, "email", later, overwrite=True) == {0: len(times), 1: 4}


def test_positions_that_are_there_are_kept_unless_overwrite_is_said(settings: Settings, produce: Produce) -> None:
    produce(settings.kafka.source_topic, 0, 3)
    positions.init(settings, "email", "now")

    with pytest.raises(Refused, match=r"has positions on 2 of 2 partitions .* --overwrite"):
        positions.init(settings, "email", "earliest")

    assert committed(settings) == {0: 3, 1: 0}


def test_a_group_with_live_members_is_refused_and_its_members_named(
    settings: Settings, join: Callable[[str], None]
) -> None:
    join(f"{settings.kafka.source_topic}.email")

    with pytest.raises(Refused, match=r"group email is running .*a-worker.*: stop its workers first"):
        positions.init(settings, "email", "earliest", overwrite=True)

    assert committed(settings) == {}
    (found,) = positions.ls(settings, ["email"])
    assert (found.state, len(found.members)) == ("STABLE", 1)


def test_a_member_that_joins_between_the_look_and_the_write_is_noticed_in_each_partitions_result(
    settings: Settings, join: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = f"{settings.kafka.source_topic}.email"
    join(group_id)
    monkeypatch.setattr(cluster, "group_states", lambda *_: {group_id: cluster.GroupState("EMPTY", [])})

    with pytest.raises(Refused, match="group email is running"):
        positions.init(settings, "email", "earliest")

    assert committed(settings) == {}


def test_added_partitions_start_at_their_first_record_and_the_others_stay(
    settings: Settings, admin: AdminClient, produce: Produce
) -> None:
    source = settings.kafka.source_topic
    produce(source, 0, 3)
    positions.init(settings, "email", "now")
    admin.create_partitions([NewPartitions(source, 4)])[source].result(10)
    grown = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 4})})
    topics.apply(grown, ["email"], add_partitions=True)
    produce(source, 3, 2)

    with pytest.raises(
        Misconfigured, match=r"no position on partition 2, 3 .* `orderflow groups init email --new-part"
    ):
        readiness.assert_worker_may_start(grown, "email")
    assert positions.init(grown, "email", new_partitions=True) == {2: 0, 3: 0}
    assert committed(grown, 4) == {0: 3, 1: 0, 2: 0, 3: 0}
    assert positions.init(grown, "email", new_partitions=True) == {}, "the second run changes nothing"
    readiness.assert_worker_may_start(grown, "email")


def test_new_partitions_of_a_group_that_never_started_is_refused(settings: Settings) -> None:
    with pytest.raises(Misconfigured, match="has no position at all"):
        positions.init(settings, "email", new_partitions=True)

    assert committed(settings) == {}


def test_a_group_that_kafka_does_not_know_is_listed_as_unknown_without_positions(settings: Settings) -> None:
    (found,) = positions.ls(settings, ["email"])

    assert (found.state, list(found.members), dict(found.committed)) == ("UNKNOWN", [], {})
    assert found.without_position == [0, 1]


def test_lag_is_what_is_not_committed_and_unknown_without_a_position(settings: Settings, produce: Produce) -> None:
    (before,) = positions.ls(settings, ["email"])
    positions.init(settings, "email", "earliest")
    produce(settings.kafka.source_topic, 0, 3)
    produce(settings.kafka.source_topic, 1, 2)

    (found,) = positions.ls(settings, ["email"])

    assert (before.lag, found.lag) == (None, 5)


def test_a_stopped_group_is_empty_and_keeps_its_positions(settings: Settings) -> None:
    positions.init(settings, "email", "earliest")

    (found,) = positions.ls(settings, ["email"])

    assert (found.state, dict(found.committed)) == ("EMPTY", {0: 0, 1: 0})


def test_a_position_outside_the_log_stops_a_worker(settings: Settings, admin: AdminClient) -> None:
    source = settings.kafka.source_topic
    positions.init(settings, "email", "earliest")
    request = ConsumerGroupTopicPartitions(f"{source}.email", [Partition(source, 1, 100)])
    for done in admin.alter_consumer_group_offsets([request]).values():
        done.result(10)

    with pytest.raises(Misconfigured, match=r"stands at 100 on partition 1 .* from 0 to 0: .* --overwrite --from"):
        readiness.assert_worker_may_start(settings, "email")


def test_init_never_touches_the_groups_own_topics(settings: Settings) -> None:
    positions.init(settings, "email", "now")

    own = topics.group_topics(settings, "email").own
    assert [
        cluster.committed(kafka.connection(settings.kafka), f"{settings.kafka.source_topic}.email", name, 2)
        for name in own
    ] == [{}] * 4


def test_without_the_source_topic_the_command_that_makes_it_is_named(settings: Settings) -> None:
    elsewhere = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"source_topic": f"{settings.kafka.source_topic}-none"})}
    )

    with pytest.raises(Misconfigured, match="does not exist: `orderflow provision`"):
        positions.init(elsewhere, "email", "earliest")
