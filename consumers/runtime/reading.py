"""What delivered messages are to this group: someone else's, claimable, or unreadable."""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from consumers.runtime.brokerclock import BrokerClock
from consumers.runtime.claims import payload_hash
from consumers.runtime.group import ConsumerGroup
from consumers.runtime.record import Assignment, Place, Record, UnclaimedRecord
from orderflow.core.topics import GroupTopics
from schemas import codec, headers
from schemas.catalog import Catalog

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOG_APPEND_TIME = 2


class Reader:
    """Sorts messages by the schema id in their frame, as the table of verdicts says.

    Only the frame is looked at for records of types that the group does not handle: no header is
    parsed, so nothing in one can be forged. Headers cost as much as a quarter of the decoding, so they
    are read only where an identity is needed: for claims, and on the group's own topics.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        topics: GroupTopics,
        catalog: Catalog,
        clock: BrokerClock,
        *,
        idempotency_epoch: int = 0,
    ) -> None:
        self._group = group.name
        self._idempotency_epoch = idempotency_epoch
        self._own = frozenset(topics.own)
        self._raw = group.raw
        self._claims = group.claims
        self._record = Record if group.claims else UnclaimedRecord
        self._types = group.types
        frames = {entry.id.to_bytes(codec.FRAME_BYTES, "big"): entry.type_name for entry in catalog.entries}
        self._handled = {frame for frame, type_name in frames.items() if type_name in group.types}
        self._others = frames.keys() - self._handled
        self._delay_ms = {topic: seconds * 1000 for topic, seconds in topics.tiers.items()}
        self._clock = clock

    def assignment(self, place: Place, epoch: int) -> Assignment:
        """Return what all records of a partition that was just assigned will have in common."""
        topic, partition = place
        return Assignment(
            topic,
            partition,
            epoch,
            group=self._group,
            idempotency_epoch=self._idempotency_epoch,
            own=topic in self._own,
        )

    def read(self, messages: Sequence[Any], assignment: Assignment, now: float) -> list[Record]:
        """Return the records of one partition's messages, without those that are none of this group's business.

        `now` are our monotonic seconds. Messages with an error must not be among them.
        """
        self._learn_time(messages[-1], now)
        make = self._record
        if self._raw:
            records: list[Record] = list(map(make, messages, repeat(assignment)))
        else:
            handled = self._handled
            records = [
                record
                for message in messages
                if (
                    record := make(message, assignment)
                    if (message.value() or b"")[: codec.FRAME_BYTES] in handled
                    else self._sort(message, assignment, now)
                )
                is not None
            ]
        if self._claims:
            for record in records:
                self._identify(record)
        if assignment.own:
            for record in records:
                self._tell_when_due(record, now)
        return records

    def sizes(self, records: Sequence[Record]) -> list[int]:
        """Return the bytes of each record; without claims those of its key and value only.

        To count the headers would cost more than to handle many a record.
        """
        if self._claims:
            return [record.size for record in records]
        return [len(record.message.key() or b"") + len(record.message) for record in records]

    def _sort(self, message: Any, assignment: Assignment, now: float) -> Record | None:
        """Return a record without a schema that the group handles, None when that is somebody else's."""
        value = message.value() or b""
        if value[: codec.FRAME_BYTES] in self._others:
            return None
        record = self._record(message, assignment)
        record.schema_known, record.due = False, now
        record_headers = headers.of(message)
        type_name = headers.header(record_headers, headers.CE_TYPE)
        if record_headers is None or codec.frame_id(value) is None or type_name is None:
            record.unreadable = True  # no producer of ours: it cannot be read by anybody
        elif type_name not in self._types:
            return None  # a new event type must not stall those who do not handle it
        record.headers = record_headers or []
        return record

    def _identify(self, record: Record) -> None:
        """Give the record the identity that it is claimed under."""
        if record.unreadable:
            record.event_id = ""
            return
        found = headers.of(record.message) if "headers" not in vars(record) else record.headers
        record.headers = found or []
        event_id = headers.header(found, headers.CE_ID) or ""
        value = record.value
        # A claim is taken before the value is decoded: under another event's id it would end that event.
        named = self._raw or not record.schema_known or codec.event_id(value) == event_id
        if found is None or not named or not _UUID.fullmatch(event_id):
            record.unreadable, event_id = True, ""
        record.event_id = event_id
        record.payload_hash = payload_hash(value)

    def _learn_time(self, message: Any, now: float) -> None:
        """Take the freshest message's time of arrival; the others of its batch came with it."""
        kind, timestamp_ms = message.timestamp()
        if kind == _LOG_APPEND_TIME:
            self._clock.arrived(timestamp_ms, now * 1000)

    def _tell_when_due(self, record: Record, now: float) -> None:
        kind, timestamp_ms = record.message.timestamp()
        delay = max(self._delay_ms.get(record.topic, 0), record.story.after_ms)
        if delay and kind == _LOG_APPEND_TIME:
            self._clock.arrived(timestamp_ms, now * 1000)
            record.due = self._clock.due(timestamp_ms, delay) / 1000
        else:
            record.due = now
