"""Lanes: who may run now, and who waits until when."""

from collections import defaultdict
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from consumers.runtime.lanes import Lanes
from consumers.runtime.record import Record
from orderflow.core.holds import HoldReason
from tests import records


def record(
    offset: int,
    key: bytes | None = b"k",
    *,
    due: float = 0.0,
    topic: str = "orders",
    partition: int = 0,
    attempts: int = 0,
) -> Record:
    return records.make(topic, partition, offset, key=key, due=due, attempts=attempts)


def taken(lanes: Lanes, now: float = 0.0, runs: int = 100) -> list[list[int]]:
    return [[r.offset for r in run] for run in lanes.take(now, runs)]


def test_one_record_of_a_key_runs_at_a_time_in_offset_order() -> None:
    lanes = Lanes("key")
    first, second = record(0), record(1)
    lanes.add(first, 0.0)
    lanes.add(second, 0.0)
    assert taken(lanes) == [[0]]
    assert taken(lanes) == []
    lanes.done(first)
    assert taken(lanes) == [[1]]


def test_a_key_is_one_lane_over_the_source_and_its_tiers() -> None:
    lanes = Lanes("key")
    retry = record(0, topic="orders.email.retry.1s")
    lanes.add(record(5), 0.0)
    lanes.add(retry, 0.0)
    assert len(lanes.take(0.0, 10)) == 1


def test_records_without_a_key_do_not_wait_for_each_other() -> None:
    lanes = Lanes("key")
    lanes.add(record(0, None), 0.0)
    lanes.add(record(1, None), 0.0)
    assert taken(lanes) == [[0], [1]]


def test_a_record_is_not_taken_before_it_is_due_and_blocks_nobody() -> None:
    lanes = Lanes("key")
    lanes.add(record(0, due=5.0), 0.0)
    lanes.add(record(1), 0.0)
    assert taken(lanes, 4.999) == [[1]]
    assert lanes.next_time(4.0) == 1.0
    assert lanes.held()[HoldReason.NOT_DUE] == 1


def test_due_records_come_out_by_due_time() -> None:
    lanes = Lanes("none")
    for offset, due in enumerate([3.0, 1.0, 2.0]):
        lanes.add(record(offset, due=due), 0.0)
    assert taken(lanes, 3.0) == [[1], [2], [0]]


def test_a_copy_takes_the_next_slot_before_the_backlog_whenever_it_was_read() -> None:
    lanes = Lanes("none")
    for offset in range(3):
        lanes.add(record(offset), 0.0)
    overdue = record(9, topic="orders.email.retry.1s", attempts=1)
    later = record(8, topic="orders.email.retry.1s", attempts=1, due=1.0)
    lanes.add(overdue, 0.0)
    lanes.add(later, 0.0)
    assert taken(lanes, 0.0, 2) == [[9], [0]]
    assert taken(lanes, 1.0) == [[8], [1], [2]]


def test_a_held_record_blocks_its_key_and_nobody_else() -> None:
    lanes = Lanes("key")
    head = record(0, b"a")
    lanes.add(head, 0.0)
    lanes.add(record(1, b"a"), 0.0)
    lanes.add(record(2, b"b"), 0.0)
    lanes.take(0.0, 1)
    lanes.hold(head, 10.0, HoldReason.OUTAGE)
    assert taken(lanes, 9.0) == [[2]]
    assert lanes.held()[HoldReason.OUTAGE] == 1
    assert taken(lanes, 10.0) == [[0]]


def test_a_record_held_without_end_waits_for_its_wake() -> None:
    lanes = Lanes("key")
    sibling = record(0)
    lanes.add(sibling, 0.0)
    lanes.take(0.0, 1)
    lanes.hold(sibling, inf, HoldReason.SIBLING)
    assert lanes.next_time(1e9) is None
    lanes.wake(sibling)
    assert taken(lanes) == [[0]]


def test_one_held_record_can_be_taken_past_its_hold() -> None:
    lanes = Lanes("key")
    alone, behind = record(0), record(1)
    lanes.add(alone, 0.0)
    lanes.add(behind, 0.0)
    lanes.take(0.0, 1)
    lanes.hold(alone, inf, HoldReason.ALONE)
    assert lanes.take_this(alone)
    assert taken(lanes) == []
    lanes.done(alone)
    assert taken(lanes) == [[1]]


def test_a_key_may_have_several_records_in_one_run_and_what_comes_back_keeps_its_order() -> None:
    lanes = Lanes("key", run_records=3)
    lanes.add_all([record(offset) for offset in range(5)], 0.0)
    ((first,),) = lanes.take(0.0, 10)
    assert taken(lanes) == []
    lanes.done(first)
    ((one, two, three),) = lanes.take(0.0, 10)
    assert [one.offset, two.offset, three.offset] == [1, 2, 3]
    lanes.hold(three, 0.0, HoldReason.KEY)
    lanes.hold(two, 7.0, HoldReason.OUTAGE)
    assert taken(lanes, 7.0) == []
    lanes.done(one)
    assert taken(lanes, 6.0) == []
    assert taken(lanes, 7.0) == [[2, 3, 4]]


def test_dropping_a_partition_closes_no_key_that_another_partition_waits_for() -> None:
    lanes = Lanes("key")
    lanes.add(record(0, topic="orders.email.retry.1s"), 0.0)
    lanes.add(record(1), 0.0)
    lanes.drop([("orders.email.retry.1s", 0)])
    assert taken(lanes) == [[1]]


def test_what_is_out_is_counted_by_assignment() -> None:
    lanes = Lanes("key")
    first, second = record(0, b"a"), record(1, b"b")
    lanes.add_all([first, second], 0.0)
    lanes.take(0.0, 10)
    assert (first.assignment.out, second.assignment.out) == (1, 1)
    lanes.done(first)
    lanes.hold(second, 1.0, HoldReason.BUSY)
    assert (first.assignment.out, second.assignment.out) == (0, 0)


def test_dropping_a_partition_forgets_what_waits_and_keeps_what_runs() -> None:
    lanes = Lanes("key")
    running = record(0, b"a")
    lanes.add(running, 0.0)
    lanes.take(0.0, 1)
    lanes.add(record(1, b"a"), 0.0)
    lanes.add(record(2, b"b", due=9.0), 0.0)
    lanes.add(record(3, b"c", partition=1), 0.0)
    lanes.drop([("orders", 0)])
    assert len(lanes) == 1
    assert taken(lanes, 100.0) == [[3]]
    # The partition comes back while the old handler still runs: its key stays closed.
    lanes.add(record(1, b"a"), 0.0)
    assert taken(lanes) == []
    lanes.done(running)
    assert taken(lanes) == [[1]]


def test_a_dropped_held_record_can_no_longer_be_taken() -> None:
    lanes = Lanes("key")
    alone = record(0)
    lanes.add(alone, 0.0)
    lanes.take(0.0, 1)
    lanes.hold(alone, inf, HoldReason.ALONE)
    lanes.drop([("orders", 0)])
    assert not lanes.take_this(alone)
    assert len(lanes) == 0


def test_a_batch_takes_several_records_of_one_partition_and_closes_it() -> None:
    lanes = Lanes("partition", run_records=3)
    for offset in range(5):
        lanes.add(record(offset, bytes([offset])), 0.0)
    lanes.add(record(0, b"z", partition=1), 0.0)
    (run, other) = lanes.take(0.0, 10)
    assert [r.offset for r in run] == [0, 1, 2]
    assert [r.partition for r in other] == [1]
    assert taken(lanes) == []
    lanes.hold(run[2], 0.0, HoldReason.BUSY)
    lanes.done(run[0])
    assert taken(lanes) == []
    lanes.hold(run[1], 0.0, HoldReason.BUSY)
    assert taken(lanes, 1.0) == [[1, 2, 3]]


steps = st.lists(
    st.tuples(st.sampled_from(["add", "take", "done", "hold", "drop"]), st.integers(0, 5), st.integers(0, 4)),
    max_size=80,
)


class Model:
    """What the lanes must agree with: who waits, who runs."""

    def __init__(self) -> None:
        self.lanes, self.now, self.added = Lanes("key"), 0.0, 0
        self.waiting: dict[int, Record] = {}
        self.running: dict[int, Record] = {}

    def step(self, what: str, number: int, extra: int) -> None:
        self.now += 0.5
        getattr(self, what)(number, extra)
        assert len(self.lanes) == len(self.waiting)

    def add(self, key: int, delay: int) -> None:
        new = record(self.added, bytes([key]), due=self.now + delay, partition=delay % 2)
        self.lanes.add(new, self.now)
        self.waiting[new.offset] = new
        self.added += 1

    def take(self, runs: int, _extra: int) -> None:
        for (r,) in self.lanes.take(self.now, runs):
            assert self.waiting.pop(r.offset) is r, "taken twice, or after it was dropped"
            assert r.due <= self.now
            assert all((r.partition, r.key) != (o.partition, o.key) for o in self.running.values())
            self.running[r.offset] = r

    def done(self, number: int, _extra: int) -> None:
        if self.running:
            self.lanes.done(self.running.pop(sorted(self.running)[number % len(self.running)]))

    def hold(self, number: int, seconds: int) -> None:
        if self.running:
            r = self.running.pop(sorted(self.running)[number % len(self.running)])
            self.lanes.hold(r, self.now + seconds, HoldReason.OUTAGE)
            self.waiting[r.offset] = r

    def drop(self, _number: int, partition: int) -> None:
        self.lanes.drop([("orders", partition % 2)])
        self.waiting = {o: r for o, r in self.waiting.items() if r.partition != partition % 2}


@given(steps)
def test_whatever_happens_no_record_is_lost_doubled_or_run_beside_its_key(what: list[tuple[str, int, int]]) -> None:
    model = Model()
    for step in what:
        model.step(*step)
    for running in model.running.values():
        model.lanes.done(running)
    drained: dict[int, int] = defaultdict(int)
    while runs := model.lanes.take(1e9, 10):
        for (r,) in runs:
            drained[r.offset] += 1
            model.lanes.done(r)
    assert drained == dict.fromkeys(model.waiting, 1)
