"""When and how offsets are committed: asynchronously, one commit in flight, its answer read.

An asynchronous call costs 20 µs and never blocked the loop for a second in two broker outages; a
synchronous one has no time-out and blocked 45 s. So it is used only when partitions go, and only
while the coordinator answers.
"""

from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.record import Place
from orderflow.core import clock, log

_log = log.get(__name__)

# A zombie's commit may have set the group back; the prefix is sent again, changed or not.
_AGAIN_SECONDS = 60.0
# A commit that has no answer for so long: the coordinator is out of reach, and waiting for it is no use.
_SILENT_SECONDS = 2.0


class Commits:
    """Commits a ledger's prefixes through one consumer."""

    def __init__(self, consumer: Consumer, ledger: OffsetLedger, *, every: float) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._every = every
        began = clock.monotonic()
        self._next = began + every
        self._again = began + _AGAIN_SECONDS
        self._sent_at: float | None = None  # monotonic seconds; None while no answer is outstanding
        self.outcomes: dict[str, int] = {}

    def commit_if_due(self, now: float) -> None:
        """Send what can be committed, unless an answer is outstanding or the last one was just now."""
        if self._sent_at is not None or now < self._next:
            return
        self._next = now + self._every
        again = now >= self._again
        if again:
            self._again = now + _AGAIN_SECONDS
        offsets = self._ledger.to_commit(self._position, again=again)
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=_partitions(offsets), asynchronous=True)
            self._sent_at = now
        except KafkaException as error:
            self._failed(error.args[0], offsets)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take the broker's answer (`on_commit`); a failure means unknown for every partition in it."""
        self._sent_at = None
        failed = error or next((tp.error for tp in partitions if tp.error is not None), None)
        if failed is None:
            self._count("ok")
        else:
            self._failed(failed, [(tp.topic, tp.partition) for tp in partitions])

    def commit_now(self, places: Collection[Place], now: float) -> None:
        """Commit partitions that are about to go; inside a rebalance callback only.

        Waits for the answer, 1 to 5 ms, unless the coordinator has been silent: then the commit is sent
        and given up. A thread that waits with a time limit is no way out: there the call never returned.
        Positions are left out, since the read around the callback may have moved them past records that
        nobody has seen yet.
        """
        offsets = self._ledger.to_commit(_unknown, only=places)
        if not offsets:
            return
        silent = self._sent_at is not None and now - self._sent_at > _SILENT_SECONDS
        try:
            if silent:
                self._consumer.commit(offsets=_partitions(offsets), asynchronous=True)
            else:
                self._consumer.commit(offsets=_partitions(offsets), asynchronous=False)
        except KafkaException as error:
            self._failed(error.args[0], offsets)
        else:
            self._count("given_up" if silent else "ok")

    def _failed(self, error: KafkaError, places: Collection[Place]) -> None:
        self._count("failed")
        self._ledger.commit_unknown(places)
        # Illegal generation and rebalance in progress are normal while a group changes hands.
        _log.info("commit failed; the current prefix is sent again", error=error.name(), partitions=len(places))

    def _position(self, place: Place) -> int:
        try:
            return int(self._consumer.position([TopicPartition(*place)])[0].offset)
        except KafkaException:
            return -1

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def _unknown(_place: Place) -> int:
    return -1


def _partitions(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
