"""Copies on a real broker: confirmed once it has them, and held for as long as it has not."""

import secrets
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from orderflow.core import clock, kafka
from retry.policy import Disposition, ToDlq, ToTier
from retry.story import Story
from schemas.headers import header
from tests.stacks.interface import Stack

Bench = Any  # of this folder's conftest.py

POISON = ToDlq(Disposition.POISON)


def test_a_retry_copy_is_in_its_tier_on_the_same_partition(bench: Bench) -> None:
    router = bench.router()
    records = [bench.record(partition=partition, key=b"k%d" % partition) for partition in (0, 1, 2)]
    pairs = [router.send(f"t{r.partition}", r, ToTier(5), bench.failure) for r in records]
    confirmed = bench.confirm(router, 3)
    tier = f"{bench.topics.group_id}.retry.5s"
    assert {(c.ticket, c.topic, c.pair) for c in confirmed} == {(f"t{p}", tier, (0, 1)) for p in (0, 1, 2)}
    assert pairs == [(0, 1)] * 3
    assert (len(router), router.unroutable) == (0, 0)
    for copy in bench.read(tier, 3):
        assert copy.key() == b"k%d" % copy.partition()
        story = Story.read(copy.headers(), own_topic=True, origin=(tier, copy.partition(), copy.offset(), 0))
        assert story.pair == (0, 1)
        assert story.origin == ("orders", copy.partition(), 7, 1)


def test_a_confirmed_copy_tells_both_clocks(bench: Bench) -> None:
    router = bench.router()
    router.send("t", bench.record(), ToTier(1), bench.failure)
    [confirmed] = bench.confirm(router, 1)
    assert abs(confirmed.appended_ms - clock.wall_ms()) < 60_000
    assert confirmed.received_ms <= clock.wall_ms()
    [copy] = bench.read(confirmed.topic, 1)
    assert copy.timestamp()[1] == confirmed.appended_ms


def test_after_a_dead_letter_the_pair_is_that_of_the_next_replay(bench: Bench) -> None:
    router = bench.router()
    assert router.send("t", bench.record(), POISON, bench.failure) == (1, 0)
    [confirmed] = bench.confirm(router, 1)
    assert (confirmed.topic, confirmed.pair) == (bench.topics.dlq, (1, 0))


def test_a_tier_that_the_group_does_not_have_is_a_mistake(bench: Bench) -> None:
    with pytest.raises(ValueError, match="no retry topic of 7 s"):
        bench.router().send("t", bench.record(), ToTier(7), bench.failure)


def test_a_retry_that_does_not_count_its_attempt_is_a_mistake(bench: Bench) -> None:
    with pytest.raises(ValueError, match="count the attempt"):
        bench.router().send("t", bench.record(), ToTier(1), replace(bench.failure, attempts=0))


def test_while_the_broker_hangs_nothing_is_confirmed_and_nothing_is_lost(bench: Bench, stack: Stack) -> None:
    router = bench.router(**{"queue.buffering.max.messages": 5})
    router.send("first", bench.record(), POISON, bench.failure)
    bench.confirm(router, 1)
    stack.kafka.pause()
    try:
        for number in range(20):  # four times what the producer's queue holds
            router.send(f"t{number}", bench.record(value=b"%d" % number), POISON, bench.failure)
        until = clock.monotonic() + 1.0
        bench.poll_until(router, lambda: clock.monotonic() > until)
        assert len(router) == 20
    finally:
        stack.kafka.resume()
    confirmed = bench.confirm(router, 20)
    assert sorted(c.ticket for c in confirmed) == sorted(f"t{number}" for number in range(20))
    found = {copy.value() for copy in bench.read(bench.topics.dlq, 21)}
    assert found == {b"value", *(b"%d" % number for number in range(20))}


def test_what_a_failed_producer_held_is_produced_again_by_a_new_one(bench: Bench, stack: Stack) -> None:
    publisher: Any = kafka.Publisher(kafka.producer_config(bench.settings.kafka))
    router = bench.router()
    router._publisher = publisher
    router.send("first", bench.record(), POISON, bench.failure)
    bench.confirm(router, 1)
    stack.kafka.pause()
    try:
        for number in range(5):
            router.send(f"t{number}", bench.record(value=b"%d" % number), POISON, bench.failure)
        publisher.failed = True  # as after a fatal error
        old = publisher._producer
        bench.poll_until(router, lambda: not publisher.failed)
        assert publisher._producer is not old
        assert (len(router), router.unroutable) == (5, 5)
    finally:
        stack.kafka.resume()
    confirmed = bench.confirm(router, 5)
    assert sorted(c.ticket for c in confirmed) == [f"t{number}" for number in range(5)]
    assert router.unroutable == 0
    assert {copy.value() for copy in bench.read(bench.topics.dlq, 6)} >= {b"%d" % number for number in range(5)}


def test_a_partition_that_the_topic_lacks_is_waited_for(bench: Bench) -> None:
    router = bench.router(**{"topic.metadata.refresh.interval.ms": 300})
    router.send("t", bench.record(partition=4), POISON, bench.failure)
    bench.poll_until(router, lambda: router.unroutable == 1)
    admin = kafka.admin(bench.settings.kafka)  # kept: a future of a client that is gone never ends
    admin.create_partitions([NewPartitions(bench.topics.dlq, 5)])[bench.topics.dlq].result(10)
    [confirmed] = bench.confirm(router, 1)
    assert confirmed.ticket == "t"
    assert [copy.partition() for copy in bench.read(bench.topics.dlq, 1)] == [4]


def limit_of_dlq(bench: Bench, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, bench.topics.dlq, incremental_configs=[entry])
    admin = kafka.admin(bench.settings.kafka)
    admin.incremental_alter_configs([resource])[resource].result(10)


def told(bench: Bench) -> tuple[str | None, str | None]:
    [copy] = bench.read(bench.topics.dlq, 1)
    names = ("__dlq.errors.exception.stacktrace", "__dlq.errors.exception.message")
    stack, message = (header(copy.headers(), name) for name in names)
    return stack, message


# Random, so that compression does not make them fit.
STACK, MESSAGE, VALUE = secrets.token_hex(4_000), secrets.token_hex(400), secrets.token_bytes(50_000)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(60_000, (STACK, MESSAGE)), (52_000, (None, MESSAGE)), (50_900, (None, None))],
)
def test_what_is_too_large_for_the_broker_loses_its_stack_then_its_message_never_its_bytes(
    bench: Bench, limit: int, expected: tuple[str | None, str | None]
) -> None:
    limit_of_dlq(bench, limit)
    router = bench.router()
    failure = replace(bench.failure, stack=STACK, message=MESSAGE)
    router.send("t", bench.record(value=VALUE), POISON, failure)
    bench.confirm(router, 1)
    assert told(bench) == expected
    assert bench.read(bench.topics.dlq, 1)[0].value() == VALUE


def test_what_is_too_large_for_the_client_loses_its_stack_too(bench: Bench) -> None:
    router = bench.router(**{"message.max.bytes": 52_000})
    failure = replace(bench.failure, stack=STACK, message=MESSAGE)
    router.send("t", bench.record(value=VALUE), POISON, failure)
    bench.confirm(router, 1)
    assert told(bench) == (None, MESSAGE)


def test_an_event_that_alone_is_too_large_waits_until_the_topic_takes_it(bench: Bench) -> None:
    limit_of_dlq(bench, 1_000)
    router = bench.router()
    router.send("t", bench.record(value=VALUE), POISON, replace(bench.failure, stack=STACK, message=MESSAGE))
    bench.poll_until(router, lambda: router.unroutable == 1)
    router.send("small", bench.record(value=b"small"), POISON, bench.failure)
    assert [c.ticket for c in bench.confirm(router, 1)] == ["small"]  # it holds up nobody else
    limit_of_dlq(bench, 200_000)
    assert [c.ticket for c in bench.confirm(router, 1)] == ["t"]
    assert {copy.value() for copy in bench.read(bench.topics.dlq, 2)} == {b"small", VALUE}
