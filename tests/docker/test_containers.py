"""What the fixture `stack` promises, tried on containers: ORDERFLOW_TEST_STACK=docker, as in `tests/docker/run`."""

import psycopg
import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from orderflow.ops.stack.kafka_ready import broker_answers
from tests.stacks.interface import Stack

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def containers(request: pytest.FixtureRequest, chosen_stack: str | None) -> Stack:
    if chosen_stack != "docker":
        pytest.skip("about containers: ORDERFLOW_TEST_STACK=docker")
    running: Stack = request.getfixturevalue("stack")
    return running


def produce(stack: Stack, topic: str) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers, "acks": "all"})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]


def test_a_killed_broker_comes_back_on_its_port_with_its_topics(containers: Stack, source_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": containers.kafka.bootstrap_servers})
    for done in admin.create_topics([NewTopic(source_topic, 1, 1)], operation_timeout=30).values():
        done.result(30)
    produce(containers, source_topic)
    (broker,) = containers.kafka.brokers

    broker.kill()
    assert broker_answers(broker.address, 1) is None
    broker.start()

    produce(containers, source_topic)


def test_a_paused_broker_takes_connections_and_answers_nothing(containers: Stack) -> None:
    (broker,) = containers.kafka.brokers
    broker.pause()
    try:
        assert broker_answers(broker.address, 1) is None
    finally:
        broker.resume()
    containers.kafka.start()
    assert broker_answers(broker.address, 1)


def test_a_killed_redis_keeps_what_is_on_disk_and_never_evicts(containers: Stack, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("claim", "mine")
        assert client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
    containers.redis.kill()
    containers.redis.start()
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("claim") == b"mine"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_a_killed_postgresql_keeps_what_was_committed(containers: Stack, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS answer")
    containers.postgres.kill()
    containers.postgres.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (7,)
