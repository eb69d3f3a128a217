"""A copy to a retry topic or to the dead letters: confirmed by a delivery report, or still held.

Nothing that is sent here is ever given up. A report that says no, or nothing for certain, has the copy
produced again; two copies of one hop have one effect, since claims know the pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaError

from orderflow.core import log
from orderflow.core.kafka import Publisher, Report
from orderflow.core.topics import GroupTopics
from retry.failure import Failure
from retry.policy import ToDlq, ToTier
from retry.story import Pair, Story, headers_for_dlq, headers_for_tier

FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 5.0
_RENEW_SECONDS = 1.0
# Without a copy under way the producer has nothing to say but errors of its connection. Each call gives the
# interpreter away, and takes up to 5 ms to get it back while handlers compute.
_IDLE_SECONDS = 0.1

_BACKOFF_DOUBLINGS = 10

T = TypeVar("T")

_log = log.get(__name__)


class SourceRecord(Protocol):
    """What the router needs of a record; it is copied byte-equal."""

    @property
    def topic(self) -> str:
        """Topic it was read from."""

    @property
    def partition(self) -> int:
        """Its partition, and that of the copy."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def key(self) -> bytes | None:
        """Its key; None stays None."""

    @property
    def value(self) -> bytes | None:
        """Its value; None stays None."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """All its headers."""

    @property
    def story(self) -> Story:
        """What its reserved headers say."""


@dataclass(slots=True, eq=False)
class Copy(Generic[T]):
    """One copy that no delivery report has confirmed yet."""

    ticket: T
    record: SourceRecord
    verdict: ToTier | ToDlq
    failure: Failure
    topic: str
    pair: Pair
    failed_tries: int = 0
    due: float | None = None  # monotonic seconds; None while a report is outstanding


@dataclass(frozen=True, slots=True)
class Confirmed(Generic[T]):
    """A copy that all in-sync replicas have: RELEASE with `pair`, then mark the source.

    `appended_ms` is the broker's clock and `received_ms` ours, in epoch milliseconds.
    """

    ticket: T
    topic: str
    verdict: ToTier | ToDlq
    pair: Pair
    appended_ms: int
    received_ms: int


class Router(Generic[T]):
    """Sends copies of one group's failed records and keeps each until it is confirmed. One thread owns it."""

    def __init__(self, publisher: Publisher[Copy[T]], topics: GroupTopics) -> None:
        self._publisher = publisher
        self._group = topics.group
        self._dlq = topics.dlq
        self._tiers = {seconds: topic for topic, seconds in topics.tiers.items()}
        self._unsent: list[Copy[T]] = []
        self._unconfirmed: set[Copy[T]] = set()
        self._may_renew_at = self._idle_until = float("-inf")
        self._limit = log.RateLimited(every=10.0)

    def __len__(self) -> int:
        """Return how many copies are not confirmed yet."""
        return len(self._unconfirmed)

    @property
    def unroutable(self) -> int:
        """How many copies have failed at least once and wait; the `unroutable` gauge of held records."""
        return sum(copy.failed_tries > 0 for copy in self._unconfirmed)

    def send(self, ticket: T, record: SourceRecord, verdict: ToTier | ToDlq, failure: Failure) -> Pair:
        """Produce a copy to the same partition of the verdict's topic; `poll` confirms it with this `ticket`.

        Returns the pair that RELEASE must store once it is confirmed: the copy's own, or that of the
        next replay after a dead letter. Raises `ValueError` for a tier that the group does not have, and
        for a retry whose attempts do not exceed the record's: its pair would not tell it from its source.
        """
        story = record.story
        if isinstance(verdict, ToDlq):
            topic, pair = self._dlq, (story.replay_count + 1, 0)
        else:
            pair = (story.replay_count, failure.attempts + story.rounds)
            if pair <= story.pair:
                raise ValueError(f"a retry of {story.pair} cannot be {pair}: count the attempt that failed")
            if verdict.seconds not in self._tiers:
                raise ValueError(f"group {self._group} has no retry topic of {verdict.seconds} s")
            topic = self._tiers[verdict.seconds]
        copy = Copy(ticket, record, verdict, failure, topic, pair)
        self._unconfirmed.add(copy)
        self._produce(copy, float("-inf"))
        return pair

    def poll(self, now: float) -> list[Confirmed[T]]:
        """Serve delivery reports without waiting, produce again what is due, and return what was confirmed.

        `now` is monotonic seconds. Call it at every turn of the loop.
        """
        if not self._unconfirmed and now < self._idle_until:
            return []
        self._idle_until = now + _IDLE_SECONDS
        reports = self._publisher.poll(0.0)
        if self._publisher.failed and now >= self._may_renew_at:
            # A fatal error never heals: what the old producer held is unknown, and is produced again.
            self._may_renew_at = now + _RENEW_SECONDS
            _log.error("producer failed for good, making a new one", waiting=len(self._unconfirmed))
            reports += self._publisher.renew()
        confirmed = [done for report in reports if (done := self._settle(report, now))]
        if not self._publisher.failed:
            self._produce_due(now)
        return confirmed

    def _settle(self, report: Report[Copy[T]], now: float) -> Confirmed[T] | None:
        copy = report.ticket
        if report.error is None:
            self._unconfirmed.discard(copy)
            return Confirmed(copy.ticket, copy.topic, copy.verdict, copy.pair, report.appended_ms, report.received_ms)
        if report.error.code() == KafkaError.MSG_SIZE_TOO_LARGE and (smaller := copy.failure.smaller()):
            # The stack goes, then the message; never the event.
            copy.failure = smaller
            self._wait(copy, now)
            return None
        self._complain(copy, report.error, now)
        self._wait(copy, now + backoff_seconds(copy.failed_tries))
        copy.failed_tries += 1
        return None

    def _wait(self, copy: Copy[T], due: float) -> None:
        copy.due = due
        self._unsent.append(copy)

    def _produce_due(self, now: float) -> None:
        unsent, self._unsent = self._unsent, []
        full = False
        for copy in unsent:
            if full or (copy.due is not None and copy.due > now):
                self._unsent.append(copy)
            else:
                full = not self._produce(copy, now)

    def _produce(self, copy: Copy[T], now: float) -> bool:
        record = copy.record
        copy.due = None
        queued = self._publisher.send(
            copy,
            copy.topic,
            key=record.key,
            value=record.value,
            headers=self._headers(copy),
            partition=record.partition,
        )
        if not queued:
            self._wait(copy, now)
        return queued

    def _headers(self, copy: Copy[T]) -> list[tuple[str, bytes | None]]:
        record, verdict = copy.record, copy.verdict
        if isinstance(verdict, ToDlq):
            return headers_for_dlq(
                record.headers,
                record.story,
                copy.failure,
                group=self._group,
                disposition=verdict.disposition,
                value=record.value,
            )
        return headers_for_tier(
            record.headers, record.story, copy.failure, group=self._group, after_seconds=verdict.not_before_seconds
        )

    def _complain(self, copy: Copy[T], error: KafkaError, now: float) -> None:
        held = self._limit.allow(f"{copy.topic} {error.name()}", now)
        if held is not None:
            _log.error(
                "a copy could not be written; it is held and tried again",
                topic=copy.topic,
                partition=copy.record.partition,
                error=error.name(),
                said=error.str(),
                waiting=len(self._unconfirmed),
                repeated=held,
                mend="`orderflow topics check` tells what the topic lacks",
            )


def backoff_seconds(failed_tries: int) -> float:
    """Return how long to wait after that many failed tries: 0.1 s, doubled each time, at most 5 s."""
    return min(FIRST_BACKOFF_SECONDS * float(1 << min(failed_tries, _BACKOFF_DOUBLINGS)), LONGEST_BACKOFF_SECONDS)
