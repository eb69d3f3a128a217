"""Events to bytes and back: Confluent's frame around one Avro record.

A value is `00`, the schema id as 4 bytes big-endian, and the Avro body. The writer always uses the
newest version; the reader takes any version that the catalog holds and returns the newest model.
"""

import io
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
from pydantic import BaseModel, ValidationError

from schemas.catalog import Catalog, SchemaEntry
from schemas.errors import (
    REASONS,
    CodecError,
    DecodeError,
    EncodeError,
    InvalidEvent,
    Malformed,
    NotFramed,
    TooLarge,
    TrailingBytes,
    UnknownSchema,
)
from schemas.events import EVENTS, MONEY_SCALE, Event

MAX_BYTES = 256 * 1024
"""The size cap of a value, frame included, unless another is given."""

FRAME_BYTES = 5
MAGIC = 0
_UUID_CHARACTERS = 36
_SMALLEST_MONEY = Decimal(1).scaleb(-MONEY_SCALE)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to read one schema id. `reader` is None when the writer's schema is the newest: the fast way."""

    writer: Any
    reader: Any
    model: type[Event]


class Codec:
    """Encodes and decodes against one catalog. Has no state beyond it; safe to share between threads."""

    def __init__(self, catalog: Catalog, *, max_bytes: int = MAX_BYTES) -> None:
        """Prepare one reading plan per schema id; `max_bytes` caps both directions."""
        self.catalog = catalog
        self.max_bytes = max_bytes
        self._plans_by_frame = {
            entry.id.to_bytes(FRAME_BYTES, "big"): self._plan(entry)
            for entry in catalog.entries
            if entry.type_name in EVENTS
        }

    def _plan(self, entry: SchemaEntry) -> _Plan:
        newest = self.catalog.newest(entry.subject)
        return _Plan(
            entry.schema,
            None if newest is entry else newest.schema,
            EVENTS[entry.type_name],
        )

    def encode(self, event: Event) -> bytes:
        """Return the framed bytes of the event in the newest version of its schema.

        Raises `EncodeError` when the event breaks its model (also when `model_construct` or
        `model_copy` went around it), its schema, or the size cap.
        """
        return self._write(event, self.catalog.newest(event.type_name), strict=True)

    def encode_as(self, event: Event, schema_id: int) -> bytes:
        """Return the framed bytes in an older version, as a producer that was not updated writes them.

        Fields that the version does not have are left out. Raises as `encode` does, and
        `EncodeError` for an id of another type.
        """
        entry = self.catalog.by_id(schema_id)
        if entry is None or entry.type_name != event.type_name:
            raise EncodeError(f"schema id {schema_id} is no version of {event.type_name}")
        return self._write(event, entry, strict=False)

    def _write(self, event: Event, entry: SchemaEntry, *, strict: bool) -> bytes:
        try:
            # `model_construct` and `model_copy` do not validate; what is written must be readable.
            checked = type(event).model_validate(event)
        except ValidationError as error:
            raise EncodeError(f"{event.type_name} is not valid: {_places(error)}") from None
        buffer = io.BytesIO()
        buffer.write(entry.id.to_bytes(FRAME_BYTES, "big"))
        try:
            fastavro.schemaless_writer(buffer, entry.schema, _plain(checked), strict=strict)
        except Exception as error:  # whatever the encoder raises means the same here
            raise EncodeError(f"{event.type_name} does not fit {entry}: {type(error).__name__}") from error
        value = buffer.getvalue()
        if len(value) > self.max_bytes:
            raise EncodeError(f"{event.type_name} has {len(value)} bytes, over the limit of {self.max_bytes}")
        return value

    def decode(self, value: bytes | None) -> Event:
        """Return the event in the newest model. Raises a `DecodeError` and nothing else."""
        plan = self._plans_by_frame.get(value[:FRAME_BYTES]) if value is not None else None
        if plan is None or value is None or len(value) > self.max_bytes:
            raise UnknownSchema(self._frame(value))
        record = _read(value, plan.writer, plan.reader)
        try:
            return plan.model.model_validate(record)
        except ValidationError as error:
            raise InvalidEvent(f"{plan.model.type_name} is not valid: {_places(error)}") from None

    def raw_decode(self, value: bytes | None) -> dict[str, Any]:
        """Return the record as it was written, in its writer's version and without the model's checks.

        For tools that show records; raises a `DecodeError` other than `InvalidEvent`.
        """
        schema_id = self._frame(value)
        entry = self.catalog.by_id(schema_id)
        if entry is None:
            raise UnknownSchema(schema_id)
        assert value is not None  # noqa: S101 - for the type checker: a missing value has no frame
        return _read(value, entry.schema, None)

    def _frame(self, value: bytes | None) -> int:
        if value is not None and len(value) > self.max_bytes:
            raise TooLarge(f"the value has {len(value)} bytes, over the limit of {self.max_bytes}")
        schema_id = frame_id(value)
        if schema_id is None:
            raise NotFramed("the value does not start with 00 and a schema id of 4 bytes")
        return schema_id


def frame_id(value: bytes | None) -> int | None:
    """Return the schema id in the frame, None when there is no frame; looks at 5 bytes only."""
    if value is None or len(value) < FRAME_BYTES or value[0] != MAGIC:
        return None
    return int.from_bytes(value[1:FRAME_BYTES], "big")


def event_id(value: bytes) -> str | None:
    """Return the event id that a framed value names, without decoding it; None when no text of that length is there.

    The lint sees to it that `event_id` is the first field of every schema: its length, then its text.
    """
    body = value[FRAME_BYTES : FRAME_BYTES + 1 + _UUID_CHARACTERS]
    if len(body) <= _UUID_CHARACTERS or body[0] != _UUID_CHARACTERS << 1:
        return None
    try:
        return body[1:].decode("ascii")
    except UnicodeDecodeError:
        return None


@cache
def default() -> Codec:
    """Return the codec of the packaged catalog with the default size cap, made once."""
    return Codec(Catalog.load())


def encode(event: Event) -> bytes:
    """Return the framed bytes of the event; see `Codec.encode`."""
    return default().encode(event)


def encode_as(event: Event, schema_id: int) -> bytes:
    """Return the framed bytes in an older version; see `Codec.encode_as`."""
    return default().encode_as(event, schema_id)


def decode(value: bytes | None) -> Event:
    """Return the event in the newest model; see `Codec.decode`."""
    return default().decode(value)


def raw_decode(value: bytes | None) -> dict[str, Any]:
    """Return the record as it was written; see `Codec.raw_decode`."""
    return default().raw_decode(value)


def _read(value: bytes, writer: Any, reader: Any) -> dict[str, Any]:
    body = io.BytesIO(value)
    body.seek(FRAME_BYTES)
    try:
        record = fastavro.schemaless_reader(body, writer, reader)
    except Exception as error:  # hostile bytes make the decoder raise whatever it likes
        raise Malformed(f"the body does not follow its schema: {type(error).__name__}") from error
    if body.tell() != len(value):
        raise TrailingBytes(f"{len(value) - body.tell()} bytes follow the record")
    if not isinstance(record, dict):
        raise Malformed("the schema is not a record")
    return record


def _plain(value: Any) -> Any:
    """Turn models into what fastavro writes. Money gets its four decimals: fastavro refuses 1.00000."""
    if isinstance(value, BaseModel):
        return {name: _plain(item) for name, item in value}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.quantize(_SMALLEST_MONEY) if isinstance(value, Decimal) else value


def _places(error: ValidationError) -> str:
    """Name the fields and the rules they break, without any value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return ", ".join(f"{'.'.join(map(str, one['loc']))} ({one['type']})" for one in found[:5])


__all__ = [
    "FRAME_BYTES",
    "MAX_BYTES",
    "REASONS",
    "Codec",
    "CodecError",
    "DecodeError",
    "EncodeError",
    "InvalidEvent",
    "Malformed",
    "NotFramed",
    "TooLarge",
    "TrailingBytes",
    "UnknownSchema",
    "decode",
    "default",
    "encode",
    "encode_as",
    "event_id",
    "frame_id",
    "raw_decode",
]
