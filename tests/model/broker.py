"""A broker that fences nothing: logs, committed offsets that anybody may set, and what is under way to it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumers.runtime.offsets import Place
from orderflow.core.kafka import Report
from schemas.headers import (
    CE_ID,
    DLQ_ID,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REPLAY_COUNT,
    DLQ_TIMESTAMP,
    DLQ_TOPIC,
    Headers,
    header,
    integer,
    strip_reserved,
)
from tests.model.promises import Broken, Promises, Who
from tests.model.system import System

# Where an event first stood outlives a replay.
_KEPT = (DLQ_TOPIC, DLQ_PARTITION, DLQ_OFFSET, DLQ_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Stored:
    """One record in a log."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def who_is(stored: Stored) -> Who:
    """Which event it is, and with which bytes."""
    return header(stored.headers, CE_ID) or "", stored.value or b""


@dataclass(slots=True)
class Sent:
    """A record under way to a log; `outbox` is None when nobody waits for its report any more."""

    place: Place
    stored: Stored
    ticket: Any
    outbox: "Outbox | None"


@dataclass(slots=True)
class CommitUnderWay:
    """Offsets under way to the broker; `consumer` is None when nobody waits for the answer any more."""

    offsets: dict[Place, int]
    consumer: "Offsets | None"


@dataclass
class Broker:
    """Logs and the group's state. None in a log is a transaction's marker: an offset that nobody is given."""

    logs: dict[Place, list[Stored | None]]
    committed: dict[Place, int | None]
    owner: dict[Place, int | None]
    sent: list[Sent] = field(default_factory=list)
    commits: list[CommitUnderWay] = field(default_factory=list)
    replayed: set[str] = field(default_factory=set)  # identities of dead letters
    replay_topic: str = ""
    set_back: bool = False  # whether somebody's commit has set the group back

    @classmethod
    def of(cls, system: System) -> "Broker":
        """Return the broker with the source filled and a chosen position on it."""
        topics, partitions = system.topics, range(len(system.source))
        logs: dict[Place, list[Stored | None]] = {
            (topic, number): [] for topic in (*topics.subscribed, topics.dlq) for number in partitions
        }
        for number, records in enumerate(system.source):
            for event, which in records:
                value = f"{event} {which}".encode()
                logs[topics.source, number].append(Stored(event.encode(), value, [("ce_id", event.encode())]))
        read = [place for place in logs if place[0] != topics.dlq]
        chosen = {place: 0 if place[0] == topics.source else None for place in read}
        return cls(logs, chosen, dict.fromkeys(read), replay_topic=topics.replay)

    @property
    def places(self) -> list[Place]:
        """What workers read."""
        return list(self.owner)

    def take_from(self, worker: int) -> None:
        """End a worker's session."""
        for place, owner in self.owner.items():
            if owner == worker:
                self.owner[place] = None

    def write(self, number: int, times: int, error: KafkaError | None) -> None:
        """Append a record under way so many times, and report so."""
        sent = self.sent.pop(number)
        self.logs[sent.place].extend([sent.stored] * times)
        if sent.outbox is not None:
            sent.outbox.reports.append(Report(sent.ticket, error))

    def take_offsets(self, offsets: dict[Place, int]) -> None:
        """Store what is told, whoever tells it."""
        self.set_back |= any(offset < (self.committed[place] or 0) for place, offset in offsets.items())
        self.committed.update(offsets)

    def take_commit(self, number: int, *, applied: bool, known: bool) -> None:
        """Take a commit under way, or lose it, or lose its answer."""
        commit = self.commits.pop(number)
        if applied:
            self.take_offsets(commit.offsets)
        if commit.consumer is not None:
            failed = None if known else KafkaError(KafkaError._TIMED_OUT)
            told = [TopicPartition(*place, offset) for place, offset in commit.offsets.items()]
            commit.consumer.answers.append((failed, told))

    def dead_letters(self) -> list[tuple[str, Stored]]:
        """All dead letters with their identity; copies of one death share it."""
        letters = [stored for place, log in self.logs.items() if place not in self.owner for stored in log if stored]
        return [(header(letter.headers, DLQ_ID) or "", letter) for letter in letters]

    def open_letters(self) -> dict[str, Stored]:
        """The dead letters that were not replayed."""
        return {letter_id: letter for letter_id, letter in self.dead_letters() if letter_id not in self.replayed}

    def holds(self, who: Who, resolved: set[tuple[Place, int]]) -> bool:
        """Whether an event with these bytes is left anywhere: unresolved in a log, or as an open dead letter."""
        wanted = [stored for stored in self.open_letters().values() if who_is(stored) == who]
        return bool(wanted) or any(
            stored is not None and who_is(stored) == who and (place, offset) not in resolved
            for place in self.owner
            for offset, stored in enumerate(self.logs[place])
        )

    def replay(self, letter_id: str) -> None:
        """Put a dead letter on the replay topic in one transaction, with its marker behind it."""
        place, letter = next(
            ((topic, number), stored)
            for (topic, number), log in self.logs.items()
            if (topic, number) not in self.owner
            for stored in log
            if stored and header(stored.headers, DLQ_ID) == letter_id
        )
        self.replayed.add(letter_id)
        told = (integer(letter.headers, DLQ_REPLAY_COUNT) or 0) + 1
        kept = [(name, value) for name, value in letter.headers if name in _KEPT]
        again = [*strip_reserved(letter.headers), *kept, (DLQ_REPLAY_COUNT, b"%d" % told)]
        self.logs[self.replay_topic, place[1]] += [Stored(letter.key, letter.value, again), None]

    def done(self) -> bool:
        """Whether nothing is under way and the group has no lag."""
        if self.sent or self.commits:
            return False
        return all((self.committed[place] or 0) == len(self.logs[place]) for place in self.owner)


class Outbox:
    """What the router of one process uses as its publisher; reports come when the walk says so."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reports: list[Report[Any]] = []
        self.failed = False

    def send(
        self,
        ticket: Any,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int,
    ) -> bool:
        self._broker.sent.append(Sent((topic, partition), Stored(key, value, list(headers)), ticket, self))
        return True

    def poll(self, _timeout: float) -> list[Report[Any]]:
        reports, self.reports = self.reports, []
        return reports

    def renew(self) -> list[Report[Any]]:
        """What was under way may still be written; the new producer knows nothing of it."""
        unknown = KafkaError(KafkaError._PURGE_QUEUE)
        mine = [sent for sent in self._broker.sent if sent.outbox is self]
        self.forget()
        self.failed = False
        return [Report(sent.ticket, unknown) for sent in mine]

    def forget(self) -> None:
        """Nobody waits for the reports any more."""
        for sent in self._broker.sent:
            if sent.outbox is self:
                sent.outbox = None


@dataclass
class Assigned:
    """What a consumer knows of one partition: where it reads, and the highest offset that it has committed."""

    epoch: int
    start: int
    position: int | None
    highest: int
    read_to: int  # the highest position so far


class Offsets:
    """What `Commits` uses as its consumer: positions and commits, checked against the promises when they are sent."""

    def __init__(self, broker: Broker, promises: Promises) -> None:
        self._broker = broker
        self._promises = promises
        self.assigned: dict[Place, Assigned] = {}
        self.answers: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self.leaving = False  # inside a revoke
        self.gave_up = False  # whether a revoke sent a commit beside one that had no answer
        self.refused = False  # whether the next synchronous commit fails

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        found = []
        for tp in partitions:
            assigned = self.assigned.get((tp.topic, tp.partition))
            known = assigned.position if assigned else None
            if known is not None and self.leaving:
                # The read around the callback may have gone on, past what anybody was given.
                known = min(known + 1, len(self._broker.logs[tp.topic, tp.partition]))
            found.append(TopicPartition(tp.topic, tp.partition, -1001 if known is None else known))
        return found

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        values = {(tp.topic, tp.partition): tp.offset for tp in offsets}
        for place, offset in values.items():
            self._promises.committing(place, offset, self._broker.logs[place], self.assigned.get(place))
            self.assigned[place].highest = offset
        if asynchronous:
            self.gave_up |= self.leaving
            if not self.gave_up and any(commit.consumer is self for commit in self._broker.commits):
                raise Broken("a commit is sent while another of this process is under way")
            self._broker.commits.append(CommitUnderWay(values, self))
            return
        for former in [commit for commit in self._broker.commits if commit.consumer is self]:
            # One connection: what was sent before is there before.
            self._broker.take_commit(self._broker.commits.index(former), applied=True, known=True)
        if self.refused:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._broker.take_offsets(values)

    def forget(self) -> None:
        """Nobody waits for the answers any more."""
        for commit in self._broker.commits:
            if commit.consumer is self:
                commit.consumer = None
