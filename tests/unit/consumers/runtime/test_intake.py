"""Intake: what a rebalance in the middle of a read does, with a consumer that rebalances when told."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from consumers.runtime import intake as module
from consumers.runtime.bounds import Bounds
from consumers.runtime.brokerclock import BrokerClock
from consumers.runtime.intake import Intake
from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.reading import Reader
from consumers.runtime.record import Place
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.topics import GroupTopics
from orderflow.testing import make_group, order_created
from schemas import codec
from schemas.catalog import Catalog
from schemas.events import OrderCreated
from schemas.headers import event_headers

TOPICS = GroupTopics("orders", "mine", (1, 5, 30))
Action = Callable[[], None]
TIER = next(iter(TOPICS.tiers))


def source(offset: int, *more: tuple[str, bytes]) -> Message:
    """Return a record of the source at an offset."""
    event = order_created()
    return Message(
        "orders", 0, offset, b"key", codec.encode(event), [*event_headers(event), *more], timestamp=(1, 1_000)
    )


class Scripted:
    """Stands for the consumer: `consume_first` runs inside consume(), where librdkafka runs the callbacks."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.on_commit = config["on_commit"]
        self.log: list[Message] = []
        self.positions: dict[Place, int] = {}
        self.committed_offsets: dict[Place, int] | None = {("orders", 0): 10}
        self.silent_answers = 0
        self.commits: list[dict[Place, int]] = []
        self.assigned: list[TopicPartition] = []
        self.consume_first: Action = lambda: None

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        assert set(topics) == set(TOPICS.subscribed)
        self.callbacks = callbacks

    def poll(self, _timeout: float) -> Message | None:
        return self._next()

    def consume(self, number: int, _timeout: float) -> list[Message]:
        self.consume_first()
        return [message for _ in range(number) if (message := self._next()) is not None]

    def _next(self) -> Message | None:
        if not self.log:
            return None
        message = self.log.pop(0)
        self.positions["orders", 0] = (message.offset() or 0) + 1
        return message

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        self.silent_answers -= 1
        if self.committed_offsets is None or self.silent_answers >= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            TopicPartition(tp.topic, tp.partition, self.committed_offsets.get((tp.topic, tp.partition), -1001))
            for tp in places
        ]

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self.positions.get((p.topic, p.partition), -1001)) for p in places]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert isinstance(asynchronous, bool)
        self.commits.append({(tp.topic, tp.partition): tp.offset for tp in offsets})

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned = places

    def incremental_unassign(self, _places: list[TopicPartition]) -> None:
        self.assigned = []

    def resume(self, _places: list[TopicPartition]) -> None:
        pass

    def rebalance(self, kind: str, *places: Place) -> None:
        self.callbacks[kind](self, [TopicPartition(*place) for place in places])


class Worker:
    """Commits in a revoke, as the worker does."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def revoking(self, places: Collection[Place]) -> None:
        self._intake.commits.commit_now(places, 0.0)

    def gone(self, places: Collection[Place]) -> None:
        pass

    def waiting(self) -> None:
        pass


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[Intake, Scripted, OffsetLedger]:
    """An intake over a scripted consumer."""
    monkeypatch.setattr(module, "Consumer", Scripted)
    group = make_group(name="mine")
    group.on(OrderCreated)(lambda *_: None)
    ledger = OffsetLedger()
    reader = Reader(group, TOPICS, Catalog.load(), BrokerClock())
    made = Intake(
        {"group.protocol": "consumer"},
        TOPICS,
        reader,
        ledger,
        Bounds(ledger, records=1_000, size=1_000_000, read_records=500),
        commit_seconds=0.0,
    )
    made.subscribe(Worker(made))
    consumer: Any = made._consumer
    return made, consumer, ledger


Opened = tuple[Intake, Scripted, OffsetLedger]


def test_a_revoke_between_two_reads_does_not_commit_what_the_first_one_gave(opened: Opened) -> None:
    intake, consumer, _ = opened
    consumer.rebalance("on_assign", ("orders", 0))
    consumer.log = [source(10), source(11)]
    consumer.consume_first = lambda: consumer.rebalance("on_revoke", ("orders", 0))
    assert intake.read(0.0, 10) == []
    assert all(commit.get(("orders", 0), 0) <= 10 for commit in consumer.commits)


def test_what_was_read_before_a_revoke_is_not_delivered_under_the_next_assignment(opened: Opened) -> None:
    intake, consumer, ledger = opened
    consumer.rebalance("on_assign", ("orders", 0))
    consumer.log = [source(12)]

    def away_and_back() -> None:
        consumer.rebalance("on_lost", ("orders", 0))
        consumer.rebalance("on_assign", ("orders", 0))

    consumer.consume_first = away_and_back
    assert intake.read(0.0, 10) == []
    consumer.consume_first = lambda: None
    consumer.log = [source(10), source(11), source(12)]
    assert [record.offset for record in intake.read(0.0, 10)] == [10, 11, 12]
    assert ledger.held(("orders", 0))[0] == 3


def test_all_bytes_of_a_record_count_against_its_partitions_bound(opened: Opened) -> None:
    intake, consumer, ledger = opened
    consumer.rebalance("on_assign", ("orders", 0))
    message = source(10, ("note", b"h" * 50_000))
    consumer.log = [message]
    assert len(intake.read(0.0, 10)) == 1
    assert ledger.held(("orders", 0))[1] > 50_000 + len(message.value() or b"") + len("key")


def test_own_topics_without_a_position_start_at_the_beginning(opened: Opened) -> None:
    _, consumer, _ = opened
    consumer.rebalance("on_assign", ("orders", 0), (TIER, 0))
    assert [(tp.topic, tp.offset) for tp in consumer.assigned] == [("orders", 10), (TIER, OFFSET_BEGINNING)]


def test_nothing_is_assigned_before_the_broker_has_told_the_offsets(opened: Opened) -> None:
    intake, consumer, _ = opened
    consumer.silent_answers = 3
    consumer.rebalance("on_assign", ("orders", 0), (TIER, 0))
    assert [(tp.topic, tp.offset) for tp in consumer.assigned] == [("orders", 10), (TIER, OFFSET_BEGINNING)]
    assert intake.read(0.0, 10) == []


def test_a_worker_that_is_never_told_its_offsets_ends(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    intake, consumer, _ = opened
    monkeypatch.setattr(module, "_POSITIONS_SECONDS", 0.05)
    consumer.committed_offsets = None
    consumer.rebalance("on_assign", ("orders", 0), (TIER, 0))
    assert consumer.assigned == []
    with pytest.raises(OrderflowError, match="start this worker again"):
        intake.read(0.0, 10)


def test_a_source_partition_without_a_position_is_refused(opened: Opened) -> None:
    intake, consumer, _ = opened
    consumer.committed_offsets = {}
    consumer.rebalance("on_assign", ("orders", 0))
    with pytest.raises(Misconfigured, match="groups init"):
        intake.read(0.0, 10)
