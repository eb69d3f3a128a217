"""Admission: what each answer of a real Redis does with a record."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimsDown
from consumers.runtime.record import Record
from orderflow.core import clock
from orderflow.core.holds import HoldReason
from orderflow.ops.stack.redis import Redis
from orderflow.testing import order_created
from retry.policy import Disposition, ToDlq
from schemas.events import OrderCreated

OpenDesk = Callable[..., Any]


def state(server: Redis, record: Record) -> dict[bytes, bytes]:
    with redis.Redis.from_url(server.url) as client:
        found: dict[bytes, bytes] = client.hgetall(f"idem:email:0:{record.event_id}")
        return found


def end_leases(server: Redis) -> None:
    with redis.Redis.from_url(server.url) as client:
        for key in client.scan_iter("idem:*"):
            client.hset(key, "exp", 1)


def test_a_new_record_is_claimed_and_may_start(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    record = desk.deliver()
    assert desk.admit() == [[record]]
    assert record.token in desk.in_flight
    assert not record.maybe_done
    assert state(redis_server, record)[b"tok"] == record.token.encode()
    assert desk.admit() == []


def test_a_record_whose_claim_another_worker_holds_waits_unresolved_and_unrouted(open_desk: OpenDesk) -> None:
    owner, other = open_desk(), open_desk()
    event = order_created()
    owner.deliver(event)
    owner.admit()
    record = other.deliver(event)
    assert other.admit() == []
    assert other.admission.answers == {Answer.BUSY: 1}
    assert other.unresolved() == 1
    assert other.copies.sent == []
    assert other.lanes.held()[HoldReason.BUSY] == 1
    assert len(other.in_flight) == 0
    waits = other.lanes.next_time(clock.monotonic())
    assert waits is not None
    assert 0 < waits <= 1.0
    owner.finish(next(iter(owner.in_flight)))
    owner.settle()
    threading.Event().wait(waits)
    assert other.admit() == []  # DONE
    assert other.admission.answers[Answer.DONE] == 1
    assert other.unresolved() == 0
    assert record.token not in other.in_flight


def test_the_heir_of_a_dead_worker_runs_it_alone_announced_and_told(open_desk: OpenDesk, redis_server: Redis) -> None:
    dead, heir = open_desk(), open_desk()
    events = [order_created() for _ in range(3)]
    for offset, event in enumerate(events):
        dead.deliver(event, offset=offset)
    assert len(dead.admit()) == 3
    end_leases(redis_server)
    fresh = heir.deliver(offset=3)
    records = [heir.deliver(event, offset=offset) for offset, event in enumerate(events)]
    runs = heir.admit()
    assert runs == [[fresh]]  # crashes are known now, and something else is claimed
    assert heir.lanes.held()[HoldReason.ALONE] == 3
    late = heir.deliver(offset=4)
    assert heir.admit() == []  # admission stops for them
    heir.finish(fresh)
    heir.settle()
    for _ in records:
        ((record,),) = heir.admit()
        assert record in records
        assert (record.maybe_done, record.crashes) == (True, 1)
        assert state(redis_server, record)[b"run"] == b"1"
        assert heir.admit() == []  # nothing beside it
        heir.finish(record)
        heir.settle()
    assert heir.admit() == [[late]]


def test_a_delivery_of_what_runs_here_already_waits_behind_it(open_desk: OpenDesk) -> None:
    desk = open_desk()
    event = order_created()
    first, second = desk.deliver(event, key=None), desk.deliver(event, key=None, offset=1)
    assert desk.admit() == [[first]]
    assert desk.lanes.held()[HoldReason.SIBLING] == 1
    assert desk.lanes.next_time(clock.monotonic()) is None  # nobody asks again before the first is done
    desk.finish(first)
    desk.settle()
    assert desk.admit() == []
    assert desk.admission.answers == {Answer.OWNED: 1, Answer.BUSY: 1, Answer.DONE: 1}
    assert desk.unresolved() == 0
    assert second.token not in desk.in_flight


def test_every_try_has_a_token_of_its_own(open_desk: OpenDesk) -> None:
    desk, other = open_desk(), open_desk()
    tokens = set()
    for place in (desk, other):
        for offset in range(3):
            place.deliver(offset=offset)
        tokens |= {record.token for run in place.admit() for record in run}
    assert len(tokens) == 6
    again = next(iter(desk.in_flight))
    desk.settlement.give_back(again)
    desk.settle()
    assert desk.admit() == [[again]]
    assert again.token not in tokens


def test_an_older_copy_is_dropped(open_desk: OpenDesk) -> None:
    desk, zombie = open_desk(), open_desk()
    event = order_created()
    desk.deliver(event, attempts=2)
    desk.admit()
    zombie.deliver(event, attempts=1)
    assert zombie.admit() == []
    assert zombie.admission.answers == {Answer.SUPERSEDED: 1}
    assert zombie.unresolved() == 0
    assert zombie.copies.sent == []


def test_other_bytes_under_the_same_id_are_a_dead_letter_that_releases_nobodys_claim(
    open_desk: OpenDesk, redis_server: Redis
) -> None:
    desk, other = open_desk(), open_desk()
    event = order_created()
    owned = desk.deliver(event)
    desk.admit()
    record = other.deliver(event, payload_hash=b"87654321")
    assert other.admit() == []
    ((_, verdict, _, _),) = other.copies.sent
    assert verdict == ToDlq(Disposition.MISMATCH)
    assert other.unresolved() == 1
    other.copies.confirm()
    other.settle()
    assert other.unresolved() == 0
    assert state(redis_server, owned)[b"tok"] == owned.token.encode()
    assert record.token == ""


def test_what_took_three_processes_with_it_is_a_dead_letter_unrun(open_desk: OpenDesk, redis_server: Redis) -> None:
    event = order_created()
    for _ in range(3):
        doomed = open_desk()
        doomed.deliver(event)
        assert len(doomed.admit()) == 1
        end_leases(redis_server)
    desk = open_desk()
    record = desk.deliver(event)
    assert desk.admit() == []
    ((_, verdict, _, _),) = desk.copies.sent
    assert verdict == ToDlq(Disposition.POISON_CRASH)
    assert record.token in desk.in_flight
    desk.copies.confirm()
    desk.settle()
    assert desk.unresolved() == 0
    assert state(redis_server, record)[b"replay"] == b"1"


@pytest.mark.parametrize("first", ["busy", "mismatch"])
def test_in_a_batch_no_answer_strands_the_one_that_must_run_alone(
    open_desk: OpenDesk, redis_server: Redis, first: str
) -> None:
    head, crashed = order_created(), order_created()
    dead = open_desk()
    dead.deliver(crashed)
    dead.admit()
    end_leases(redis_server)
    owner = open_desk()
    owner.deliver(head)
    owner.admit()
    desk = open_desk(batches=True)
    desk.deliver(head, **({"payload_hash": b"87654321"} if first == "mismatch" else {}))
    record = desk.deliver(crashed, offset=1)
    assert desk.admit() == []
    owner.finish(next(iter(owner.in_flight)))
    owner.settle()
    deadline = clock.monotonic() + 60
    pause = threading.Event()
    runs: list[list[Record]] = []
    while not runs:
        assert clock.monotonic() < deadline
        pause.wait(0.05)
        desk.copies.confirm()
        desk.settle()
        runs = desk.admit()
    assert runs == [[record]]


def test_in_a_batch_what_follows_a_waiting_record_is_given_back_unrun(open_desk: OpenDesk, redis_server: Redis) -> None:
    held = order_created()
    owner, desk = open_desk(), open_desk(batches=True)
    owner.deliver(held)
    owner.admit()
    before, _, after = desk.deliver(offset=0), desk.deliver(held, offset=1), desk.deliver(offset=2)
    assert desk.admit() == [[before]]
    desk.settle()
    assert state(redis_server, after)[b"st"] == b"R"
    assert state(redis_server, after)[b"unsure"] == b"0"
    assert set(desk.in_flight) == {before}
    assert desk.unresolved() == 3


def test_unknown_schemas_wait_for_a_deployment_and_then_go_to_the_dead_letters(open_desk: OpenDesk) -> None:
    desk = open_desk()
    now = clock.monotonic()
    desk.deliver(schema_known=False, due=now)
    assert desk.admit() == []
    assert desk.admission.answers == {}
    assert desk.lanes.held()[HoldReason.UNKNOWN_SCHEMA] == 1
    assert desk.copies.sent == []
    old = desk.deliver(offset=1, schema_known=False, due=now - 901)
    assert desk.admit() == []
    ((ticket, verdict, _, _),) = desk.copies.sent
    assert (ticket, verdict) == (old, ToDlq(Disposition.UNKNOWN_SCHEMA))
    assert old.token in desk.in_flight


def test_in_a_batch_nothing_passes_what_waits_for_a_deployment(open_desk: OpenDesk) -> None:
    desk = open_desk(batches=True)
    now = clock.monotonic()
    before = desk.deliver(key=b"one key")
    desk.deliver(offset=1, key=b"one key", schema_known=False, due=now)
    desk.deliver(offset=2, key=b"one key")
    assert desk.admit() == [[before]]
    desk.finish(before)
    desk.settle()
    assert desk.admit() == []
    assert desk.lanes.held()[HoldReason.UNKNOWN_SCHEMA] == 1
    assert desk.unresolved() == 2


def test_without_an_answer_the_same_claims_are_asked_first(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    first = desk.deliver()
    redis_server.stop()
    with pytest.raises(ClaimsDown):
        desk.admit()
    token = first.token
    second = desk.deliver(offset=1)
    with pytest.raises(ClaimsDown):
        desk.admit()
    assert second.token == ""
    redis_server.start()
    assert desk.admit() == [[first]]
    assert first.token == token
    assert desk.admit() == [[second]]


def test_a_claim_without_an_answer_is_released_when_its_partition_goes(
    open_desk: OpenDesk, redis_server: Redis
) -> None:
    desk = open_desk()
    record = desk.deliver()
    redis_server.pause()
    try:
        with pytest.raises(ClaimsDown):
            desk.admit()
    finally:
        redis_server.resume()
    assert desk.admission.withdraw([("orders", 0)]) == [record]
    desk.settlement.give_back(record)
    desk.lanes.drop([("orders", 0)])
    desk.settle()
    desk.ledger.revoke(("orders", 0))
    desk.lanes.drop([("orders", 0)])
    assert desk.admit() == []
    assert len(desk.in_flight) == 0
    heir = open_desk()
    assert heir.admit() == []
    taken = heir.deliver(event_id=record.event_id, payload_hash=record.payload_hash, key=b"k")
    assert heir.admit() == [[taken]]
    assert not taken.maybe_done


def test_one_event_never_runs_twice_at_a_time_however_many_ask(open_desk: OpenDesk) -> None:
    event = order_created(event_id=uuid4())
    desks = [open_desk() for _ in range(5)]
    for desk in desks:
        desk.deliver(event)
    assert sum(len(desk.admit()) for desk in desks) == 1
    assert isinstance(event, OrderCreated)
