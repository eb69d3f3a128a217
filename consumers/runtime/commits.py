"""When and how offsets are committed: asynchronously, one commit in flight, its answer read.

An asynchronous call costs 20 µs and never blocked the loop for a second in two broker outages; a
synchronous one has no time-out and blocked 45 s. So it is used only when partitions go, and given up
when the budget is over.
"""

import threading
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.record import Place
from orderflow.core import log

_log = log.get(__name__)

# A zombie's commit may have set the group back; the prefix is sent again, changed or not.
_AGAIN_SECONDS = 60.0


class Commits:
    """Commits a ledger's prefixes through one consumer."""

    def __init__(self, consumer: Consumer, ledger: OffsetLedger, *, every: float) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._every = every
        self._next = 0.0
        self._again = _AGAIN_SECONDS
        self._in_flight = False
        self.outcomes: dict[str, int] = {}

    def commit_if_due(self, now: float) -> None:
        """Send what can be committed, unless an answer is outstanding or the last one was just now."""
        if self._in_flight or now < self._next:
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
            self._in_flight = True
        except KafkaException as error:
            self._failed(error.args[0], offsets)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take the broker's answer (`on_commit`); a failure means unknown for every partition in it."""
        self._in_flight = False
        failed = error or next((tp.error for tp in partitions if tp.error is not None), None)
        if failed is None:
            self._count("ok")
        else:
            self._failed(failed, [(tp.topic, tp.partition) for tp in partitions])

    def commit_now(self, places: Collection[Place], seconds: float) -> bool:
        """Commit partitions that are about to go, waiting up to `seconds` for the answer.

        The waiting is done by a thread that is left behind when the time is over: the call itself
        knows no time-out. This thread is inside the rebalance callback meanwhile, so no consume loop
        runs beside it.
        """
        offsets = self._ledger.to_commit(self._position, again=False, only=places)
        if not offsets:
            return True
        done: list[KafkaError | None] = []

        def commit() -> None:
            try:
                self._consumer.commit(offsets=_partitions(offsets), asynchronous=False)
                done.append(None)
            except KafkaException as error:
                done.append(error.args[0])

        thread = threading.Thread(target=commit, name="last-commit", daemon=True)
        thread.start()
        thread.join(max(0.0, seconds))
        if not done:
            self._count("given_up")
            _log.warning(
                "the last commit before a revoke was given up", seconds=round(seconds, 1), partitions=len(offsets)
            )
            return False
        if done[0] is not None:
            self._failed(done[0], offsets)
            return False
        self._count("ok")
        return True

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


def _partitions(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
