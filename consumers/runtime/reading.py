"""What a delivered message is to this group: someone else's, claimable, or unreadable."""

import re
from typing import Any

from consumers.runtime.brokerclock import BrokerClock
from consumers.runtime.claims import payload_hash
from consumers.runtime.group import ConsumerGroup
from consumers.runtime.record import Record
from orderflow.core.topics import GroupTopics
from retry.story import Story
from schemas import codec, headers
from schemas.catalog import Catalog

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOG_APPEND_TIME = 2


class Reader:
    """Sorts messages by the schema id in their frame, as the table of verdicts says.

    Only the frame is looked at for records of types that the group does not handle: no header is
    parsed, so nothing in one can be forged.
    """

    def __init__(self, group: ConsumerGroup, topics: GroupTopics, catalog: Catalog, clock: BrokerClock) -> None:
        self._types = group.types
        self._handled_ids = {entry.id for entry in catalog.entries if entry.type_name in group.types}
        self._other_ids = {entry.id for entry in catalog.entries} - self._handled_ids
        self._delay_ms = {topic: seconds * 1000 for topic, seconds in topics.tiers.items()}
        self._own = frozenset(topics.own)
        self._clock = clock

    def read(self, message: Any, epoch: int, now: float) -> Record | None:
        """Return the record, or None when it is none of this group's business (outcome `skipped`)."""
        value = message.value()
        schema_id = codec.frame_id(value)
        if schema_id in self._other_ids:
            return None
        record_headers = headers.of(message)
        if record_headers is None:
            record_headers, schema_id = [], None  # they cannot be told, so neither can its event
        known = schema_id in self._handled_ids
        if schema_id is not None and not known:
            type_name = headers.header(record_headers, headers.CE_TYPE)
            if type_name is not None and type_name not in self._types:
                return None  # a new event type must not stall those who do not handle it
            if type_name is None:
                schema_id = None  # no producer of ours: it cannot be read by anybody
        kind, timestamp_ms = message.timestamp()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        event_id = headers.header(record_headers, headers.CE_ID) or ""
        story = Story.read(
            record_headers, own_topic=topic in self._own, origin=(topic, partition, offset, timestamp_ms)
        )
        record = Record(
            topic=topic,
            partition=partition,
            offset=offset,
            epoch=epoch,
            key=message.key(),
            value=value,
            headers=record_headers,
            timestamp_ms=timestamp_ms,
            due=self._due(topic, kind, timestamp_ms, story, now),
            story=story,
            schema_known=known,
        )
        # A claim is taken before the value is decoded: under another event's id it would end that event.
        named = not known or codec.event_id(value) == event_id
        if schema_id is not None and named and _UUID.fullmatch(event_id):
            record.event_id = event_id
            record.payload_hash = payload_hash(value)
        return record

    def _due(self, topic: str, kind: int, timestamp_ms: int, story: Story, now: float) -> float:
        if kind != _LOG_APPEND_TIME:
            return now
        self._clock.arrived(timestamp_ms, now * 1000)
        delay = max(self._delay_ms.get(topic, 0), story.after_ms)
        return self._clock.due(timestamp_ms, delay) / 1000 if delay else now
