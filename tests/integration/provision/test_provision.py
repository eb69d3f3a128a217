"""`provision` chooses positions only on a cluster whose source topic it has just made."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster, positions, readiness, topics
from orderflow.ops.provision.provision import provision


def test_on_a_new_cluster_every_known_group_starts_at_the_first_record(settings: Settings) -> None:
    done = provision(settings)

    assert list(done.groups) == ["email", "inventory", "audit"]
    assert done.migrations
    assert settings.kafka.source_topic in done.topics.created
    for found in positions.ls(settings, ["email", "inventory", "audit"]):
        assert dict(found.committed) == {0: 0, 1: 0}
        readiness.assert_worker_may_start(settings, found.group)


def test_the_second_run_changes_nothing(settings: Settings) -> None:
    provision(settings)

    again = provision(settings)

    assert (list(again.migrations), list(again.topics.created), list(again.groups)) == ([], [], [])


def test_on_a_cluster_that_has_the_source_topic_no_position_is_set(
    settings: Settings, produce: Callable[..., list[int]]
) -> None:
    topics.apply(settings, [])
    produce(settings.kafka.source_topic, 0, 3)

    done = provision(settings)

    assert list(done.groups) == []
    assert all(not found.committed for found in positions.ls(settings, ["email", "inventory", "audit"]))
    with pytest.raises(Misconfigured, match="orderflow groups init audit --from"):
        readiness.assert_worker_may_start(settings, "audit")


def test_a_group_that_lost_its_offsets_is_not_sent_back_to_the_first_record(
    settings: Settings, admin: AdminClient
) -> None:
    provision(settings)
    group_id = f"{settings.kafka.source_topic}.email"
    admin.delete_consumer_groups([group_id])[group_id].result(10)

    provision(settings)

    assert cluster.committed(kafka.connection(settings.kafka), group_id, settings.kafka.source_topic, 2) == {}
