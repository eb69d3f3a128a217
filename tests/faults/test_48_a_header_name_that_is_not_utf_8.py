"""A header name that is not UTF-8: the client cannot tell the headers; the record is a dead letter, the loop lives.

The client's Python side cannot write such a name, so the record is sent by the C library inside of it.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.ops.demo.topics import TopicReader, published
from orderflow.testing import GroupHarness, make_group, order_created
from schemas import codec
from schemas import headers as names
from schemas.events import Event, OrderCreated
from schemas.headers import event_headers

# rd_kafka_vtype_t, RD_KAFKA_MSG_F_COPY
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS, _COPY = 0, 1, 3, 4, 5, 7, 10, 2


def produce_in_c(servers: str, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Send one record, compressed like its topic: the broker then keeps its bytes, header names included."""
    package = Path(confluent_kafka.__file__).parent
    paths = list(package.parent.glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not paths:
        pytest.skip("this build of the client has no librdkafka of its own")
    c = ctypes.CDLL(str(paths[0]))
    for function in (c.rd_kafka_conf_new, c.rd_kafka_new, c.rd_kafka_headers_new):
        function.restype = ctypes.c_void_p
    said = ctypes.create_string_buffer(512)
    config = ctypes.c_void_p(c.rd_kafka_conf_new())
    for name, setting in ((b"bootstrap.servers", servers.encode()), (b"compression.codec", b"lz4")):
        assert c.rd_kafka_conf_set(config, name, setting, said, ctypes.c_size_t(512)) == 0, said.value
    producer = ctypes.c_void_p(c.rd_kafka_new(0, config, said, ctypes.c_size_t(512)))
    assert producer.value, said.value
    listed = ctypes.c_void_p(c.rd_kafka_headers_new(ctypes.c_size_t(8)))
    for name, text in headers:
        c.rd_kafka_header_add(listed, name, ctypes.c_ssize_t(len(name)), text, ctypes.c_ssize_t(len(text)))
    number, size = ctypes.c_int, ctypes.c_size_t
    arguments: list[Any] = [
        *(number(_TOPIC), ctypes.c_char_p(topic.encode())),
        *(number(_PARTITION), number(0)),
        *(number(_VALUE), ctypes.c_char_p(value), size(len(value))),
        *(number(_KEY), ctypes.c_char_p(b"key"), size(3)),
        *(number(_FLAGS), number(_COPY)),
        *(number(_HEADERS), listed),
        number(_END),
    ]
    assert c.rd_kafka_producev(producer, *arguments) == 0
    assert c.rd_kafka_flush(producer, 10_000) == 0
    c.rd_kafka_destroy(producer)


def test_its_headers_are_lost_to_us_but_neither_the_event_nor_the_worker_is(settings: Settings) -> None:
    group = make_group()
    seen: list[Event] = []

    @group.on(OrderCreated)
    def handle(event: OrderCreated, _delivery: Delivery, _deps: object) -> None:
        seen.append(event)

    one = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 1})})
    bad, after = order_created(), order_created()
    # The padding is what makes the client's batch smaller compressed than not.
    told = [*((name.encode(), text) for name, text in event_headers(bad)), (b"\xff\xfe", b"0" * 3_000)]
    with GroupHarness(group, one, workers=0) as harness:
        # Many before it: a call that the interpreter has specialised does not notice the client's error by itself.
        harness.publish(*(order_created() for _ in range(100)))
        produce_in_c(one.kafka.bootstrap_servers, harness.topics.source, codec.encode(bad), told)
        harness.publish(after)
        harness.start_worker()
        harness.wait_drained(60)
        (letter,) = harness.dead_letters()
        (source,) = (record for record in harness.records(harness.topics.source) if record.offset == 100)
        with TopicReader(one, [harness.topics]) as reader:
            read = partial(reader.read_to, {(harness.topics.source, 0): 102})
            harness.wait_until(read, "the demo's reader to have read the source", 60)
            _, foreign = published(reader.of(harness.topics.source))
    assert (source.value, source.headers) == (codec.encode(bad), [])
    assert [place.offset for place in foreign] == [100]
    assert (letter.key, letter.value) == (b"key", codec.encode(bad))
    assert (letter.header(names.DLQ_DISPOSITION), letter.integer(names.DLQ_OFFSET)) == ("POISON", 100)
    assert len(seen) == 101
    assert seen[-1] == after
    assert bad not in seen
