"""A group starts where nobody chose: a refusal that names the command; after `groups init` it may start."""

import pytest
from confluent_kafka.admin import AdminClient

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster, positions, readiness, topics

NAMES_THE_COMMAND = r"has no position on .*`orderflow groups init email --from earliest\|now\|TIME`"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 2})})
    topics.apply(few, ["email"])
    return few


def test_a_group_that_never_started_is_refused_until_somebody_chooses(settings: Settings) -> None:
    with pytest.raises(Misconfigured, match=NAMES_THE_COMMAND) as refused:
        readiness.assert_worker_may_start(settings, "email")
    assert refused.value.exit_code == 78

    positions.init(settings, "email", "earliest")

    readiness.assert_worker_may_start(settings, "email")


def test_a_group_whose_offsets_were_forgotten_is_refused_like_a_new_one(settings: Settings) -> None:
    positions.init(settings, "email", "now")
    readiness.assert_worker_may_start(settings, "email")
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    group_id = f"{settings.kafka.source_topic}.email"
    admin.delete_consumer_groups([group_id])[group_id].result(10)

    with pytest.raises(Misconfigured, match=NAMES_THE_COMMAND):
        readiness.assert_worker_may_start(settings, "email")


def test_topics_apply_never_sets_a_position(settings: Settings) -> None:
    topics.apply(settings, ["email"])

    source = settings.kafka.source_topic
    assert cluster.committed(kafka.connection(settings.kafka), f"{source}.email", source, 2) == {}


def test_a_retry_tier_that_is_missing_is_named(settings: Settings) -> None:
    positions.init(settings, "email", "earliest")
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    tier = f"{settings.kafka.source_topic}.email.retry.5s"
    admin.delete_topics([tier])[tier].result(10)

    with pytest.raises(Misconfigured, match=f"{tier} does not exist: run `orderflow topics apply`$"):
        readiness.assert_worker_may_start(settings, "email")


def test_topics_that_are_missing_name_their_command_once(settings: Settings) -> None:
    source = settings.kafka.source_topic
    missing = rf"^\d topics of points are missing \({source}\.points\.retry\.1s, …\): "

    with pytest.raises(Misconfigured, match=missing + "run `orderflow topics apply`$"):
        readiness.assert_worker_may_start(settings, "points")
    with pytest.raises(
        Misconfigured,
        match=missing + "set ORDERFLOW_GROUPS=email,inventory,audit,points:group, then run `orderflow topics apply`$",
    ):
        readiness.assert_worker_may_start(settings, "points", unlisted="points:group")
