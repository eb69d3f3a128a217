"""The DLQ received null instead of the undecodable bytes."""

from dataclasses import dataclass
from itertools import product

from confluent_kafka import Consumer, Message, TopicPartition

from orderflow.core import clock, kafka
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics
from orderflow.ops.provision import topics as provision
from retry.failure import Failure
from retry.policy import Disposition, Stage, ToDlq
from retry.router import Copy, Router
from retry.story import Story
from schemas.errors import NotFramed
from schemas.headers import Headers, is_reserved

VALUES = [None, b"", b"\x00", b"\xff\xfe not a frame", b"\x00\x00\x01\x86\xa1 cut", bytes(range(256)) * 400]
KEYS = [None, b"", b"\xff\xfe", b"k" * 10_000]
HEADERS: list[Headers] = [
    [],
    [("x", None), ("x", b""), ("x", b"\xff\x00"), ("x", b"1"), ("", b"nameless"), ("\u00e9", b"\xc3")],
    [("ce_id", b"not a uuid"), ("dlq.id", b"forged"), ("ce_id", b"\xff")],
]


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def story(self) -> Story:
        return Story.read(self.headers, own_topic=False, origin=(self.topic, self.partition, self.offset, 1))


def test_value_key_and_foreign_headers_are_byte_equal(settings: Settings) -> None:
    provision.apply(settings, ["email"])
    topics = GroupTopics(settings.kafka.source_topic, "email", settings.worker.retry_seconds)
    router: Router[int] = Router(kafka.Publisher[Copy[int]](kafka.producer_config(settings.kafka)), topics)
    failure = Failure.of(NotFramed("no frame"), stage=Stage.DECODE, attempts=0, at_ms=1)
    records = [
        Record(topics.source, 5, offset, key, value, headers)
        for offset, (value, key, headers) in enumerate(product(VALUES, KEYS, HEADERS))
    ]
    for record in records:
        router.send(record.offset, record, ToDlq(Disposition.POISON), failure)
    deadline = clock.monotonic() + 30
    while len(router):
        assert clock.monotonic() < deadline
        router.poll(clock.monotonic())

    reader = Consumer(kafka.connection(settings.kafka) | {"group.id": "reader", "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(topics.dlq, 5, 0)])
        letters: list[Message] = []
        while len(letters) < len(records):
            assert clock.monotonic() < deadline
            letters += reader.consume(len(records) - len(letters), 0.2)
    finally:
        reader.close()
    for record, letter in zip(records, letters, strict=True):
        headers = letter.headers()
        assert isinstance(headers, list)
        assert (letter.key(), letter.value()) == (record.key, record.value)
        assert [pair for pair in headers if not is_reserved(pair[0])] == [
            pair for pair in record.headers if not is_reserved(pair[0])
        ]
        assert dict(headers)["__dlq.errors.offset"] == b"%d" % record.offset
        assert dict(headers)["__dlq.errors.disposition"] == b"POISON"
    assert len({dict(letter.headers() or ())["dlq.id"] for letter in letters}) > len(VALUES)
