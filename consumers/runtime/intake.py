"""The Kafka consumer: assignment epochs, what is delivered, pause and resume, revoke.

One thread owns it. In confluent-kafka 2.16 a `commit()` from a second thread never returned beside a
tight `consume` loop, so commits are made here too (`commits.py`), by the same thread.
"""

from collections.abc import Collection
from itertools import groupby
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from consumers.runtime.bounds import MAKE_ROOM_SECONDS, Bounds
from consumers.runtime.commits import Commits
from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.reading import Reader
from consumers.runtime.record import Assignment, Place, Record
from orderflow.core import clock, log
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.topics import GroupTopics

_log = log.get(__name__)

# How long an assignment may wait for the broker to tell committed offsets, and for each answer.
_POSITIONS_SECONDS = 60.0
_ANSWER_SECONDS = 1.0


class Rebalanced(Protocol):
    """What the worker does when partitions come and go; called inside `Intake.read` and `Intake.close`."""

    def revoking(self, places: Collection[Place]) -> None:
        """Partitions go: finish or release what runs, within the revoke budget."""

    def gone(self, places: Collection[Place]) -> None:
        """Partitions are no longer ours: drop what waits."""

    def waiting(self) -> None:
        """Keep the leases of what runs: an assignment waits for the broker."""


class Intake:
    """Reads a group's source, tiers and replay topic, and keeps each partition within its own bound.

    A partition is paused only above its own bound of unresolved records or bytes, and resumed below
    half of it: a pause purges the prefetched records and a resume costs up to a second. Raises, from
    `read`, `Misconfigured` when a source partition has no position that somebody chose.
    """

    def __init__(
        self,
        config: dict[str, Any],
        topics: GroupTopics,
        reader: Reader,
        ledger: OffsetLedger,
        bounds: Bounds,
        *,
        commit_seconds: float,
    ) -> None:
        self._topics = topics
        self._reader = reader
        self._ledger = ledger
        self._bounds = bounds
        self._epoch = 0
        self._assignments: dict[Place, Assignment] = {}
        self._changes = 0  # how often the assignment changed, so that a read can tell
        self._read_at = 0.0
        self._starts: dict[Place, int | None] = {}  # what is assigned, and the offset it was told to start at
        self._refusal: OrderflowError | None = None
        self.assigned_once = False
        self.skipped: dict[str, int] = {}
        self.rebalances: dict[str, int] = {}
        self._incremental = config.get("group.protocol") == "consumer"
        self._consumer = Consumer({**config, "on_commit": self._on_commit})
        self.commits = Commits(self._consumer, ledger, every=commit_seconds)

    def subscribe(self, rebalanced: Rebalanced) -> None:
        """Join the group; `rebalanced` hears of every change, inside `read` and `close`."""
        self._rebalanced = rebalanced
        self._consumer.subscribe(
            list(self._topics.subscribed), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def read(self, timeout: float, limit: int) -> list[Record]:
        """Return up to `limit` records, waiting up to `timeout` seconds for the first; rebalances happen inside.

        `consume(n, t)` alone would wait its whole time for n records: a lone one took 264 ms, this way 4.
        While handlers run (`timeout` 0) and a partition is near its bound, nothing is read for a moment:
        fast handlers make room in that time, and a pause would cost more than it.
        """
        now = clock.monotonic()
        if timeout == 0.0 and now - self._read_at < MAKE_ROOM_SECONDS and self._bounds.is_tight():
            return []
        self._read_at = now
        changes = self._changes
        first = self._consumer.poll(timeout)
        # Taken before the next call: a rebalance in there may end the assignment that it belongs to.
        records = [] if first is None else self._take([first])
        if first is not None and limit > 1 and (more := self._consumer.consume(limit - 1, 0)):
            records += self._take(more)
        if self._refusal is not None:
            raise self._refusal
        if changes != self._changes:
            records = [record for record in records if self._ledger.epoch(record.place) == record.epoch]
        self._balance()
        return records

    def out(self, places: Collection[Place]) -> bool:
        """Return whether a record of these partitions was taken to be run and is not settled."""
        return any(self._assignments[place].out for place in places if place in self._assignments)

    def close(self) -> None:
        """Leave the group; the revoke inside it finishes, releases and commits."""
        self._consumer.close()

    def _take(self, messages: list[Message]) -> list[Record]:
        now = clock.monotonic()
        records: list[Record] = []
        if any(map(Message.error, messages)):
            messages = self._without_errors(messages)
        for partition, of_partition in groupby(messages, Message.partition):
            for topic, part in groupby(of_partition, Message.topic):
                # None: fetched before a revoke that has happened since.
                assignment = self._assignments.get((topic, partition))  # type: ignore[arg-type]
                if assignment is not None:
                    records += self._deliver(list(part), assignment, now)
        return records

    def _deliver(self, messages: list[Message], assignment: Assignment, now: float) -> list[Record]:
        """Note one partition's messages in the ledger, and return what is to be handled."""
        place = assignment.place
        records = self._reader.read(messages, assignment, now)
        passed_over = len(messages) - len(records)
        if passed_over:
            self._ledger.pass_over(place, int(messages[-1].offset() or 0))
            self.skipped[place[0]] = self.skipped.get(place[0], 0) + passed_over
        if not records:
            return records
        self._bounds.delivered(place)
        offsets = [record.message.offset() for record in records]
        new = self._ledger.deliver_all(place, offsets, self._reader.sizes(records))
        if len(new) == len(offsets):
            return records
        by_offset = dict(zip(offsets, records, strict=True))
        return [by_offset[offset] for offset in new]

    def _without_errors(self, messages: list[Message]) -> list[Message]:
        sound = []
        for message in messages:
            error = message.error()
            if error is None:
                sound.append(message)
            else:
                self._on_message_error(error, message)
        return sound

    def _on_message_error(self, error: KafkaError, message: Message) -> None:
        topic, partition = str(message.topic()), message.partition()
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the library's public name
            if topic in self._topics.own and partition is not None:
                self._begin_again((topic, partition))
                return
            raise Misconfigured(
                f"{self._topics.group_id} has no valid position on {topic}[{partition}] ({error.str()}): "
                f"stop the group's workers and run `orderflow groups init {self._topics.group} --from …`"
            )
        if error.code() == KafkaError._FATAL or error.fatal():  # noqa: SLF001 - `fatal()` is False on _FATAL itself
            raise OrderflowError(f"the consumer of {self._topics.group_id} failed for good: {error.str()}")
        # _MAX_POLL_EXCEEDED comes as a message, then lost, then assign: all of it is handled elsewhere.
        _log.warning("consumer error", error=error.name(), said=error.str(), topic=topic, partition=partition)

    def _begin_again(self, place: Place) -> None:
        """Read one of our own topics from its start, since the group's position is not in its log (any more).

        It holds nothing but pending copies: claims sort out what was done. A new epoch, since the old
        one's position, however high, is the ledger's floor. No seek: the client refuses it in this state.
        """
        _log.warning("no valid position on a topic of our own: it is read from its start", place=place)
        self._rebalanced.gone([place])
        start = TopicPartition(*place, OFFSET_BEGINNING)
        if self._incremental:
            self._consumer.incremental_unassign([start])
            self._consumer.incremental_assign([start])
        else:
            # This protocol knows whole assignments only; what has no position yet starts as it was told to.
            self._starts[place] = OFFSET_BEGINNING
            known = self._consumer.position([TopicPartition(*assigned) for assigned in self._starts])
            for tp in known:
                if tp.offset >= 0 and (tp.topic, tp.partition) != place:
                    self._starts[tp.topic, tp.partition] = tp.offset
            self._consumer.assign([_at(assigned, offset) for assigned, offset in self._starts.items()])
        self._consumer.resume([start])
        self._epoch += 1
        self._assign(place, None)

    def _balance(self) -> None:
        if over := self._bounds.to_pause():
            self._consumer.pause([TopicPartition(*place) for place in over])
        if under := self._bounds.to_resume():
            self._consumer.resume([TopicPartition(*place) for place in under])

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._count("assigned")
        self._epoch += 1
        positions = self._positions(consumer, partitions)
        placed = []
        for place, committed in positions.items():
            start = committed
            if committed is None:
                if place[0] in self._topics.own:
                    start = OFFSET_BEGINNING
                else:
                    self._refusal = _no_position(self._topics, place[1])
            self._assign(place, committed)
            self._starts[place] = start
            placed.append(_at(place, start))
        if self._incremental:
            consumer.incremental_assign(placed)
        else:
            consumer.assign(placed)
        if placed:
            consumer.resume(placed)  # a pause survives a re-assignment
        self.assigned_once = True

    def _assign(self, place: Place, committed: int | None) -> None:
        self._changes += 1
        self._bounds.forget(place)
        self._ledger.assign(place, self._epoch, committed)
        self._assignments[place] = self._reader.assignment(place, self._epoch)

    def _positions(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[Place, int | None]:
        """Return the group's committed offsets (None: never committed), asking until the broker tells all of them.

        A client that is assigned without an offset asks for itself, and when it is told "not coordinator" it
        never asks again though it stays a member (librdkafka issue 5586): its partitions stand still for ever.
        Empty after `_POSITIONS_SECONDS`: the worker then ends, and another one takes the partitions.
        """
        found: dict[Place, int | None] = {}
        until = clock.monotonic() + _POSITIONS_SECONDS
        while missing := [tp for tp in partitions if (tp.topic, tp.partition) not in found]:
            try:
                told = consumer.committed(missing, timeout=_ANSWER_SECONDS)
            except KafkaException as error:
                _log.warning("the broker does not tell committed offsets; it is asked again", error=str(error))
                told = []
            found |= {
                (tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in told if tp.error is None
            }
            if clock.monotonic() > until:
                self._refusal = OrderflowError(
                    f"the broker did not tell the offsets of {self._topics.group_id} within {_POSITIONS_SECONDS:g} s; "
                    "start this worker again"
                )
                return {}
            self._rebalanced.waiting()
        return found

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._count("revoked")
        places = [(tp.topic, tp.partition) for tp in partitions]
        self._rebalanced.revoking(places)
        self._end(consumer, partitions, places)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # No commit: it would be refused, and with static membership it kills the member for good.
        self._count("lost")
        self._end(consumer, partitions, [(tp.topic, tp.partition) for tp in partitions])

    def _end(self, consumer: Consumer, partitions: list[TopicPartition], places: list[Place]) -> None:
        self._rebalanced.gone(places)
        for place in places:
            self._changes += 1
            self._ledger.revoke(place)
            self._assignments.pop(place, None)
            self._bounds.forget(place)
            self._starts.pop(place, None)
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.commits.answered(error, partitions)

    def _count(self, kind: str) -> None:
        self.rebalances[kind] = self.rebalances.get(kind, 0) + 1


def _at(place: Place, offset: int | None) -> TopicPartition:
    return TopicPartition(*place) if offset is None else TopicPartition(*place, offset)


def _no_position(topics: GroupTopics, partition: int) -> Misconfigured:
    return Misconfigured(
        f"{topics.group_id} has no position on {topics.source}[{partition}] and must not guess one: stop the group's "
        f"workers and run `orderflow groups init {topics.group} --new-partitions` (or `--from earliest|now|TIME`)"
    )
