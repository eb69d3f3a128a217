"""What can be wrong with the bytes of an event.

    CodecError
    ├── EncodeError          the event cannot be written; nothing was produced
    └── DecodeError          the record cannot be read; `reason` is a metric label
        ├── TooLarge         longer than the size cap; nothing was decoded
        ├── NotFramed        no value, shorter than a frame, or not our magic byte
        ├── UnknownSchema    the frame's id is not in this program's catalog
        ├── Malformed        the body is not what its schema says
        ├── TrailingBytes    a whole event, and something after it
        ├── InvalidEvent     well-formed Avro, but no event that the model accepts
        └── IdsDisagree      the `ce_id` header is not the payload's `event_id`

No message contains a value out of the record: it may end in a header or a log.
"""

from typing import ClassVar


class CodecError(Exception):
    """Base of everything that the codec raises on purpose."""


class EncodeError(CodecError):
    """Raised when an event breaks its own model, its schema or the size cap."""


class DecodeError(CodecError):
    """Raised when a record is no event of ours; `reason` comes from a closed set."""

    reason: ClassVar[str] = "decode"


class TooLarge(DecodeError):
    """Raised before decoding when the value is longer than the cap."""

    reason = "too_large"


class NotFramed(DecodeError):
    """Raised when the value is missing or does not start with a Confluent frame."""

    reason = "not_framed"


class UnknownSchema(DecodeError):
    """Raised when the catalog does not hold `schema_id`: the producers may be newer than this program."""

    reason = "unknown_schema"

    def __init__(self, schema_id: int) -> None:
        """Keep the id that the frame names."""
        super().__init__(f"schema id {schema_id} is not in the catalog of this program; deploy the consumers")
        self.schema_id = schema_id


class Malformed(DecodeError):
    """Raised when the decoder fails on the body."""

    reason = "malformed"


class TrailingBytes(DecodeError):
    """Raised when the body holds more than one record."""

    reason = "trailing_bytes"


class InvalidEvent(DecodeError):
    """Raised when the decoded record breaks the model, as a negative quantity does."""

    reason = "invalid_event"


class IdsDisagree(DecodeError):
    """Raised when the record's header names another event than its payload: forged or broken."""

    reason = "ids_disagree"


REASONS = frozenset(
    error.reason
    for error in (
        TooLarge,
        NotFramed,
        UnknownSchema,
        Malformed,
        TrailingBytes,
        InvalidEvent,
        IdsDisagree,
    )
)
"""Every value that `DecodeError.reason` can have."""
