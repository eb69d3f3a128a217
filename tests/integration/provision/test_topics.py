"""Topics on a real broker."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import cluster, topics


def with_worker(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"worker": settings.worker.model_copy(update=changes)})


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(10)


def test_apply_makes_every_topic_of_the_contract_and_the_second_run_changes_nothing(
    settings: Settings, admin: AdminClient
) -> None:
    source = settings.kafka.source_topic

    first = topics.apply(settings, ["email"])
    second = topics.apply(settings, ["email"])

    group = f"{source}.email"
    wanted = {f"{group}.retry.1s", f"{group}.retry.5s", f"{group}.retry.30s", f"{group}.replay", f"{group}.dlq"}
    counts = {name: count for name, count in cluster.partition_counts(admin).items() if name.startswith(source)}
    assert counts == {source: 2, **dict.fromkeys(wanted, 2), f"{group}.dlq.state": 1}
    assert set(first.created) == set(counts)
    assert (list(second.created), dict(second.altered), list(second.grown)) == ([], {}, [])
    assert topics.check(settings, ["email"]) == []


def test_each_topic_has_the_settings_that_the_guarantees_rest_on(settings: Settings, admin: AdminClient) -> None:
    source = settings.kafka.source_topic
    topics.apply(settings, ["email"])

    actual = cluster.topic_configs(admin, [source, f"{source}.email.dlq", f"{source}.email.dlq.state"])

    assert actual[source]["retention.ms"] == "-1"
    assert actual[source]["message.timestamp.type"] == "LogAppendTime"
    assert actual[source]["max.message.bytes"] == "1048576"
    assert actual[f"{source}.email.dlq"]["retention.ms"] == "-1"
    assert actual[f"{source}.email.dlq"]["max.message.bytes"] == "1114112"
    assert actual[f"{source}.email.dlq.state"]["cleanup.policy"] == "compact"


def test_check_names_each_missing_topic_and_the_command(settings: Settings) -> None:
    problems = topics.check(settings, ["audit"])

    source = settings.kafka.source_topic
    assert {problem.where for problem in problems} >= {source, f"{source}.audit.dlq", f"{source}.audit.retry.5s"}
    assert {problem.what for problem in problems} == {"does not exist"}
    assert {problem.mend for problem in problems} == {"`orderflow topics apply`"}


def test_a_changed_setting_is_shown_by_check_and_mended_by_apply(settings: Settings, admin: AdminClient) -> None:
    dlq = f"{settings.kafka.source_topic}.email.dlq"
    topics.apply(settings, ["email"])
    set_config(admin, dlq, "retention.ms", "604800000")

    (problem,) = topics.check(settings, ["email"])
    mended = topics.apply(settings, ["email"])

    assert str(problem) == f"{dlq} has retention.ms=604800000, not -1: `orderflow topics apply`"
    assert mended.altered == {dlq: {"retention.ms": "-1"}}
    assert topics.check(settings, ["email"]) == []


def test_the_source_is_never_grown(settings: Settings, admin: AdminClient) -> None:
    topics.apply(settings, [])
    more = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 4})})

    for add_partitions in (False, True):
        with pytest.raises(Misconfigured, match=r"has 2 partitions, not 4: set ORDERFLOW_KAFKA__PARTITIONS=2"):
            topics.apply(more, ["email"], add_partitions=add_partitions)

    names = [name for name in cluster.partition_counts(admin) if name.startswith(settings.kafka.source_topic)]
    assert names == [settings.kafka.source_topic], "a refused run must change nothing"


def test_a_topic_with_too_many_partitions_is_refused_and_named(settings: Settings, admin: AdminClient) -> None:
    tier = f"{settings.kafka.source_topic}.email.retry.5s"
    admin.create_topics([NewTopic(tier, 3, 1)])[tier].result(10)

    with pytest.raises(Misconfigured, match=rf"{tier} has 3 partitions, not 2: Kafka cannot take partitions away"):
        topics.apply(settings, ["email"], add_partitions=True)


def test_a_tier_that_the_settings_no_longer_have_is_refused_and_never_deleted(
    settings: Settings, admin: AdminClient
) -> None:
    topics.apply(settings, ["email"])
    fewer = with_worker(settings, retry_seconds=(1, 30))
    leftover = f"{settings.kafka.source_topic}.email.retry.5s"

    with pytest.raises(Misconfigured, match=rf"{leftover} is no tier of ORDERFLOW_WORKER__RETRY_SECONDS=1,30"):
        topics.apply(fewer, ["email"])

    assert [problem.where for problem in topics.check(fewer, ["email"])] == [leftover]
    assert leftover in cluster.partition_counts(admin)


def test_another_groups_tiers_are_none_of_this_groups_business(settings: Settings) -> None:
    topics.apply(with_worker(settings, retry_seconds=(1, 7)), ["email-archive"])

    assert topics.apply(settings, ["email"]).created
    assert topics.check(settings, ["email"]) == []


def test_runs_side_by_side_make_each_topic_once(settings: Settings) -> None:
    with ThreadPoolExecutor(4) as runs:
        done = list(runs.map(lambda _: topics.apply(settings, ["email"]), range(4)))

    created = [name for changes in done for name in changes.created]
    assert len(created) == len(set(created)) == 7
    assert topics.check(settings, ["email"]) == []


def test_more_replicas_than_brokers_names_the_setting(settings: Settings) -> None:
    three = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"replication_factor": 3})})

    with pytest.raises(Misconfigured, match="ORDERFLOW_KAFKA__REPLICATION_FACTOR"):
        topics.apply(three, [])


def test_brokers_that_forget_offsets_soon_are_a_warning_and_stop_nobody(
    settings: Settings, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply(settings, [])
    told = {
        number: {**config, "offsets.retention.minutes": "10080", "auto.create.topics.enable": "true"}
        for number, config in cluster.broker_configs(admin).items()
    }
    monkeypatch.setattr(cluster, "broker_configs", lambda _: told)

    problems = topics.check(settings, [])

    assert [problem.severity for problem in problems] == ["warning", "warning"]
    assert "stopped for 7 days" in problems[0].what
    assert "offsets.retention.minutes=525600" in problems[0].mend
    assert "mistyped name" in problems[1].what


def test_an_unreachable_broker_is_one_sentence() -> None:
    nowhere = load({"ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ORDERFLOW_KAFKA__START_TIMEOUT_SECONDS": "1"})

    with pytest.raises(Misconfigured, match=r"Kafka does not answer at 127\.0\.0\.1:1") as raised:
        topics.check(nowhere, [])

    assert "\n" not in str(raised.value)


def test_apply_returns_only_when_the_brokers_show_what_it_mended(
    settings: Settings, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq = f"{settings.kafka.source_topic}.email.dlq"
    topics.apply(settings, ["email"])
    set_config(admin, dlq, "retention.ms", "604800000")
    stale = {dlq: {**cluster.topic_configs(admin, [dlq])[dlq], "retention.ms": "604800000"}}
    ask, answers = cluster.topic_configs, 0

    def lagging(client: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
        nonlocal answers
        answers += 1
        told = ask(client, names)
        return told | stale if answers <= 3 else told

    monkeypatch.setattr(cluster, "topic_configs", lagging)

    assert topics.apply(settings, ["email"]).altered == {dlq: {"retention.ms": "-1"}}
    assert answers == 4
    assert topics.check(settings, ["email"]) == []
