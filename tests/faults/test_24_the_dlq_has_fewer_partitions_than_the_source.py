"""The DLQ has fewer partitions than the source: a clear refusal at start."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster, positions, readiness, topics


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})


def test_a_worker_refuses_to_start_naming_the_topic_and_the_command_that_mends_it(settings: Settings) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    dlq = f"{settings.kafka.source_topic}.email.dlq"
    admin.create_topics([NewTopic(dlq, 1, 1)])[dlq].result(10)
    with pytest.raises(Misconfigured, match=f"{dlq} has 1 partitions, not 3"):
        topics.apply(settings, ["email"])
    topics.apply(settings, [])
    positions.init(settings, "email", "earliest")

    with pytest.raises(Misconfigured) as refused:
        readiness.assert_worker_may_start(settings, "email")

    assert f"{dlq} has 1 partitions, not 3" in str(refused.value)
    assert "`orderflow topics apply --add-partitions`" in str(refused.value)
    assert refused.value.exit_code == 78
    assert cluster.partition_counts(admin)[dlq] == 1, "nothing is grown unasked"

    grown = topics.apply(settings, ["email"], add_partitions=True)
    assert list(grown.grown) == [dlq]
    readiness.assert_worker_may_start(settings, "email")
