"""Pure: what the reserved headers say about a record, and what they say after a hop.

They are believed only on the group's own retry and replay topics. Whatever they hold, nothing here
raises: a counter that cannot be read counts as "attempts exhausted", and as later than any copy that
we have written, so that the copy at hand is never mistaken for an old one and dropped.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from retry.failure import NAME_BYTES, Failure, cut
from retry.policy import AFTER_LIMIT_SECONDS, Disposition
from schemas import headers as names
from schemas.headers import Headers, header, integer, strip_reserved

Pair = tuple[int, int]
"""(replay count, hop) of a copy; hop = attempts + rounds so far. A higher one is the later copy."""

UNREADABLE = 1_000_000
"""What a malformed counter counts as: above every budget, and far below what a script's number can hold."""

_MOST = 2**50  # Lua's numbers are exact up to 2**53; a counter above is malformed


class Origin(NamedTuple):
    """Where an event first stood; `timestamp_ms` is the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a record's past.

    `attempts` are handler attempts so far, `rounds` further ones in the last tier. `after_ms` is the
    wait from the copy's own timestamp that the handler asked for, 0 if none. `first_failure_ms` is on
    Redis' clock, None before the first failure.
    """

    origin: Origin
    attempts: int = 0
    rounds: int = 0
    replay_count: int = 0
    replay_id: str = ""
    after_ms: int = 0
    first_failure_ms: int | None = None
    first_failure_class: str = ""

    @classmethod
    def read(
        cls,
        headers: Sequence[tuple[str, bytes | None]] | None,
        *,
        own_topic: bool,
        origin: tuple[str, int, int, int],
    ) -> Self:
        """Read the headers of a record at `origin` (topic, partition, offset, timestamp in ms).

        `own_topic` says whether that is a retry or replay topic of this group; elsewhere they are forged.
        """
        here = Origin(*origin)
        if not own_topic or not headers:
            return cls(here)
        attempts, rounds, replay_count = (
            _counter(headers, name) for name in (names.DLQ_DELIVERY_COUNT, names.RETRY_ROUNDS, names.DLQ_REPLAY_COUNT)
        )
        if attempts is None or rounds is None or replay_count is None:
            attempts, rounds = UNREADABLE, 0
        return cls(
            origin=_origin(headers) or here,
            attempts=attempts,
            rounds=rounds,
            replay_count=UNREADABLE if replay_count is None else replay_count,
            replay_id=_text(headers, names.DLQ_REPLAY_ID),
            after_ms=min(integer(headers, names.RETRY_AFTER) or 0, int(AFTER_LIMIT_SECONDS * 1000)),
            first_failure_ms=integer(headers, names.DLQ_FIRST_TIMESTAMP),
            first_failure_class=_text(headers, names.DLQ_FIRST_EXCEPTION_CLASS),
        )

    @property
    def pair(self) -> Pair:
        """Replay count and hop, by which Redis tells a later copy from an older one."""
        return self.replay_count, self.attempts + self.rounds


def headers_for_tier(
    headers: Sequence[tuple[str, bytes | None]] | None,
    story: Story,
    failure: Failure,
    *,
    group: str,
    after_seconds: float | None = None,
) -> Headers:
    """Return the headers of a copy on a retry topic; `after_seconds` holds it longer than the tier does."""
    after = [] if after_seconds is None else [(names.RETRY_AFTER, math.ceil(after_seconds * 1000))]
    return _with(headers, [*_told(story, failure, group), *after])


def headers_for_dlq(
    headers: Sequence[tuple[str, bytes | None]] | None,
    story: Story,
    failure: Failure,
    *,
    group: str,
    disposition: Disposition,
    value: bytes | None,
) -> Headers:
    """Return the headers of a copy among the dead letters of `group`."""
    return _with(
        headers,
        [
            *_told(story, failure, group),
            (names.DLQ_DISPOSITION, disposition),
            (names.DLQ_ID, dlq_id(group, header(headers, names.CE_ID), story, value)),
        ],
    )


def dlq_id(group: str, event_id: str | None, story: Story, value: bytes | None) -> str:
    """Return the identity of a death: two copies of one death share it, and it outlives its topic.

    Without an event id the place where the record first stood takes its part.
    """
    who = event_id or f"{story.origin.topic}:{story.origin.partition}:{story.origin.offset}"
    digest = hashlib.sha256()
    for part in (group.encode(), who.encode(), value, b"%d" % story.replay_count):
        # Lengths between the parts, so that no two lists of parts read the same.
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.hexdigest()[:32]


def _told(story: Story, failure: Failure, group: str) -> list[tuple[str, str | int]]:
    first_ms = failure.at_ms if story.first_failure_ms is None else story.first_failure_ms
    first_class = failure.class_name if story.first_failure_ms is None else story.first_failure_class
    return [
        (names.DLQ_TOPIC, story.origin.topic),
        (names.DLQ_PARTITION, story.origin.partition),
        (names.DLQ_OFFSET, story.origin.offset),
        (names.DLQ_TIMESTAMP, story.origin.timestamp_ms),
        (names.DLQ_GROUP, group),
        (names.DLQ_DELIVERY_COUNT, failure.attempts),
        (names.RETRY_ROUNDS, story.rounds),
        (names.DLQ_STAGE, failure.stage),
        (names.DLQ_EXCEPTION_CLASS, failure.class_name),
        (names.DLQ_EXCEPTION_MESSAGE, failure.message),
        (names.DLQ_EXCEPTION_STACKTRACE, failure.stack),
        (names.DLQ_FIRST_TIMESTAMP, first_ms),
        (names.DLQ_FIRST_EXCEPTION_CLASS, first_class),
        (names.DLQ_FINGERPRINT, failure.fingerprint),
        (names.DLQ_REPLAY_COUNT, story.replay_count),
        (names.DLQ_REPLAY_ID, story.replay_id),
    ]


def _with(headers: Sequence[tuple[str, bytes | None]] | None, ours: list[tuple[str, str | int]]) -> Headers:
    """Return the foreign headers as they were, then ours; what has no text is left out."""
    told = [(name, str(value).encode(errors="replace")) for name, value in ours if value != ""]
    return [*strip_reserved(headers), *told]


def _counter(headers: Sequence[tuple[str, bytes | None]], name: str) -> int | None:
    """Return a counter, 0 when it is absent; None when it is malformed."""
    if all(key != name for key, _ in headers):
        return 0
    number = integer(headers, name)
    return None if number is None or number > _MOST else number


def _text(headers: Sequence[tuple[str, bytes | None]], name: str) -> str:
    return cut(header(headers, name) or "", NAME_BYTES)


def _origin(headers: Sequence[tuple[str, bytes | None]]) -> Origin | None:
    topic = header(headers, names.DLQ_TOPIC)
    partition, offset, timestamp_ms = (
        integer(headers, name) for name in (names.DLQ_PARTITION, names.DLQ_OFFSET, names.DLQ_TIMESTAMP)
    )
    if not topic or partition is None or offset is None or timestamp_ms is None:
        return None
    return Origin(topic, partition, offset, timestamp_ms)
