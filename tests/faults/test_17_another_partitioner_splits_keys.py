"""Another client's default partitioner splits a key over partitions: ours agrees with Java's murmur2."""

import time
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from orderflow.core import kafka
from orderflow.core.kafka import Publisher
from orderflow.core.settings import Settings

PARTITIONS, KEYS = 12, 1_000


def murmur2(data: bytes) -> int:
    """Return what `org.apache.kafka.common.utils.Utils.murmur2` does, written after that source."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # the vectors of Kafka's own UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_yardstick_itself_agrees_with_java(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


def test_a_thousand_order_ids_land_where_java_puts_them(settings: Settings) -> None:
    topic = settings.kafka.source_topic
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    keys = [str(UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)).encode() for number in range(KEYS)]
    publisher: Publisher[bytes] = Publisher(kafka.producer_config(settings.kafka))
    for key in keys:
        assert publisher.send(key, topic, key=key, value=b"v", headers=[])
    delivered: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(delivered) < KEYS:
        assert time.monotonic() < deadline, "reports are missing"
        reports = publisher.poll(0.1)
        assert all(report.error is None for report in reports)
        delivered += [report.ticket for report in reports]
    found: dict[bytes, int] = {}
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": "tests-without-a-group"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(found) < KEYS:
            assert time.monotonic() < deadline + 30, "records are missing"
            for message in consumer.consume(KEYS, 0.5):
                assert message.error() is None
                found[message.key() or b""] = message.partition() or 0
    finally:
        consumer.close()
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys}
