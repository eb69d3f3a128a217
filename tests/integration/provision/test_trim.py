"""`topics trim` on a real broker, beside a worker that runs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from consumers.runtime.group import ConsumerGroup, Delivery
from orderflow.core.settings import Settings
from orderflow.ops.provision import cluster
from orderflow.ops.provision.trim import trim
from orderflow.testing import GroupHarness, make_group, order_created
from retry.errors import Retry
from schemas import codec
from schemas.events import Event, OrderCreated

PARTITIONS = range(2)
# The second tier is out of reach of a test: what stands in it is pending.
TIERS = (1, 3_600)
FOR_EVER = "EUR"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"worker": settings.worker.model_copy(update={"retry_seconds": TIERS})})


@pytest.fixture
def group() -> ConsumerGroup:
    """A group whose first attempt fails; events of one currency fail for ever."""
    made = make_group()

    @made.on(OrderCreated)
    def fails_at_first(event: Event, delivery: Delivery, _dependencies: None) -> None:
        assert isinstance(event, OrderCreated)
        if delivery.attempt == 1 or event.currency == FOR_EVER:
            message = "not yet"
            raise Retry(message)

    return made


@pytest.fixture
def harness(group: ConsumerGroup, settings: Settings) -> Iterator[GroupHarness]:
    with GroupHarness(group, settings) as running:
        yield running


def orders(count: int, currency: str = "GBP") -> list[Event]:
    return [order_created({"TEA": 1}).model_copy(update={"currency": currency}) for _ in range(count)]


def edges(admin: AdminClient, topic: str) -> dict[int, tuple[int, int]]:
    starts = cluster.offsets(admin, topic, PARTITIONS, OffsetSpec.earliest())
    ends = cluster.offsets(admin, topic, PARTITIONS, OffsetSpec.latest())
    return {number: (starts[number], ends[number]) for number in PARTITIONS}


def test_what_is_resolved_goes_what_is_pending_stays_and_the_worker_goes_on(
    harness: GroupHarness, settings: Settings, admin: AdminClient
) -> None:
    first, second = harness.topics.tiers
    pending = orders(4, FOR_EVER)
    harness.publish(*orders(12), *pending)
    harness.wait_until(lambda: sum(harness.ends(second).values()) == len(pending), "the last tier to be reached")
    harness.wait_until(lambda: harness.committed(first) == harness.ends(first), "the first tier to be done")
    source = edges(admin, harness.topics.source)

    told = trim(settings, [harness.group.name], dry_run=True)
    assert {start for start, _ in edges(admin, first).values()} == {0}
    assert sum(share.offsets for share in told) == 16

    assert trim(settings, [harness.group.name]) == told
    assert all(start == end for start, end in edges(admin, first).values())
    assert {start for start, _ in edges(admin, second).values()} == {0}
    assert {record.value for record in harness.records(second)} == {_encoded(event) for event in pending}
    assert edges(admin, harness.topics.source) == source

    before = sum(harness.ends(first).values())
    harness.publish(*orders(6))
    harness.wait_until(lambda: sum(harness.ends(first).values()) == before + 6, "new copies")
    harness.wait_until(lambda: harness.committed(first) == harness.ends(first), "the new copies to be done")
    assert harness.dead_letters() == []


def _encoded(event: Event) -> bytes:
    return codec.encode(event)


def test_what_is_pending_above_a_committed_offset_stays(settings: Settings, admin: AdminClient) -> None:
    group = make_group()
    with GroupHarness(group, settings, workers=0) as stopped:
        first = next(iter(stopped.topics.tiers))
        stopped.publish_raw([(b"key", b"%d" % number, []) for number in range(5)], topic=first, partition=0)
        place = TopicPartition(first, 0, 2)
        (set_to,) = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(stopped.topics.group_id, [place])]
        ).values()
        assert set_to.result(30).topic_partitions[0].error is None

        trim(settings, [group.name])

        assert edges(admin, first)[0] == (2, 5)
        assert [record.value for record in stopped.records(first)] == [b"2", b"3", b"4"]


def test_a_group_that_committed_nothing_keeps_everything(settings: Settings, admin: AdminClient) -> None:
    group = make_group()
    stopped = GroupHarness(group, settings, workers=0)
    with stopped:
        first = next(iter(stopped.topics.tiers))
        stopped.publish_raw([(b"key", b"value", [])] * 5, topic=first, partition=0)

        told = [share for share in trim(settings, [group.name]) if share.topic == first]

        assert [share.state for share in told] == ["no position", "no position"]
        assert edges(admin, first)[0] == (0, 5)


def test_dead_letters_stay_whatever_was_committed_there(settings: Settings, admin: AdminClient) -> None:
    group = make_group()
    with GroupHarness(group, settings, workers=0) as stopped:
        stopped.publish_raw([(b"key", b"value", [])] * 5, topic=stopped.topics.dlq, partition=0)

        told = trim(settings, [group.name])

        assert {share.topic for share in told} == set(stopped.topics.own)
        assert edges(admin, stopped.topics.dlq)[0] == (0, 5)


def test_a_group_without_topics_has_nothing_to_trim(settings: Settings) -> None:
    assert trim(settings, ["nobody-here"]) == []


@pytest.mark.long
def test_the_command_says_what_goes_and_what_is_left_alone(
    harness: GroupHarness, settings: Settings, tmp_path: Path
) -> None:
    first, second = harness.topics.tiers
    harness.publish(*orders(6))
    harness.wait_until(lambda: sum(harness.committed(first).values()) == 6, "six copies to be done")
    (tmp_path / "other_team.py").write_text(
        "from orderflow.testing import make_group\n"
        f"ran = make_group(name={harness.group.name!r})\n"
        f"never_ran = make_group(name={harness.group.name + '-x'!r})\n",
        encoding="utf-8",
    )
    idle = make_group(name=f"{harness.group.name}-x")
    with GroupHarness(idle, settings, workers=0):
        environ = {
            "PATH": os.environ["PATH"],
            "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "ORDERFLOW_KAFKA__SOURCE_TOPIC": settings.kafka.source_topic,
            "ORDERFLOW_WORKER__RETRY_SECONDS": ",".join(map(str, TIERS)),
            "ORDERFLOW_GROUPS": "other_team:ran,other_team:never_ran",
        }

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "orderflow", "topics", "trim", *arguments]
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        would = json.loads(run("--dry-run", "--json"))
        assert sum(share["offsets"] for share in would["partitions"]) == 6
        said = run()
        assert f"{first} " in said
        assert f"left alone: {settings.kafka.source_topic}.{idle.name}.retry.1s, partitions 0, 1" in said
    assert harness.records(second) == []
