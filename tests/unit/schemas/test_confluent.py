"""Our bytes are the bytes that Confluent's serializers write and read, with the ids of our lock."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas import codec
from schemas.catalog import Catalog, SchemaEntry
from schemas.events import Event, OrderCancelled, OrderCreated, OrderPaid

VALUE = SerializationContext("orders", MessageField.VALUE)
FORBIDDEN = "the lock gives out ids, not a registry"


class LockedRegistry(SchemaRegistryClient):
    """Serves `registry.json`; connects to nothing and registers nothing."""

    def __init__(self) -> None:
        super().__init__({"url": "http://127.0.0.1:9"})
        self.catalog = Catalog.load()

    def register_schema(self, *_: Any, **__: Any) -> int:
        raise AssertionError(FORBIDDEN)

    def register_schema_full_response(self, *_: Any, **__: Any) -> RegisteredSchema:
        raise AssertionError(FORBIDDEN)

    def get_schema(self, schema_id: int, *_: Any, **__: Any) -> Schema:
        entry = self.catalog.by_id(schema_id)
        if entry is None:
            raise SchemaRegistryError(404, 40403, "Schema not found")
        return _schema(entry)

    def lookup_schema(self, subject_name: str, schema: Schema, *_: Any, **__: Any) -> RegisteredSchema:
        for entry in self.catalog.versions(subject_name):
            if json.loads(schema.schema_str or "") == entry.document:
                return RegisteredSchema(subject_name, entry.version, entry.id, None, _schema(entry))
        raise SchemaRegistryError(404, 40403, "Schema not found")


def _schema(entry: SchemaEntry) -> Schema:
    return Schema(json.dumps(entry.document), "AVRO")


def _serializer(schema_id: int) -> AvroSerializer:
    conf = {"auto.register.schemas": False, "subject.name.strategy": record_subject_name_strategy}
    registry = LockedRegistry()
    serializer: AvroSerializer = AvroSerializer(registry, registry.get_schema(schema_id), conf=conf)
    return serializer


@pytest.fixture
def events(created: Callable[..., OrderCreated], paid: OrderPaid, cancelled: OrderCancelled) -> list[Event]:
    return [created(), paid, cancelled]


def test_our_bytes_are_those_of_confluents_serializer(events: list[Event]) -> None:
    for event in events:
        newest = Catalog.load().newest(event.type_name)
        assert codec.encode(event) == _serializer(newest.id)(event.model_dump(), VALUE)


def test_an_older_versions_bytes_are_those_of_confluents_serializer(created: Callable[..., OrderCreated]) -> None:
    event = created()
    fields = event.model_dump(exclude={"channel", "delivery_date"})
    assert codec.encode_as(event, 100001) == _serializer(100001)(fields, VALUE)


def test_we_read_what_confluents_serializer_writes(events: list[Event]) -> None:
    for event in events:
        value = _serializer(Catalog.load().newest(event.type_name).id)(event.model_dump(), VALUE)
        assert codec.decode(value) == event


def test_confluents_deserializer_reads_ours(events: list[Event]) -> None:
    read = AvroDeserializer(LockedRegistry(), conf={"subject.name.strategy": record_subject_name_strategy})
    for event in events:
        record: Any = read(codec.encode(event), VALUE)
        assert type(event).model_validate(record) == event


def test_confluents_deserializer_reads_an_older_version_into_the_newest(created: Callable[..., OrderCreated]) -> None:
    registry = LockedRegistry()
    conf = {"subject.name.strategy": record_subject_name_strategy}
    read = AvroDeserializer(registry, registry.get_schema(100002), conf=conf)
    value = codec.encode_as(created(), 100001)
    record: Any = read(value, VALUE)
    assert OrderCreated.model_validate(record) == codec.decode(value)
