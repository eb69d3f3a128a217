"""Settlement: effect, then Redis, then the offset; for failures the confirmed copy, then Redis, then the offset."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimsDown
from consumers.runtime.handling import DeadlinePassed
from consumers.runtime.record import Record
from orderflow.core import clock
from orderflow.core.holds import HoldReason
from orderflow.ops.stack.redis import Redis
from orderflow.testing import order_created
from retry.errors import Outage, Reject, Retry, Throttled
from retry.policy import Disposition, Stage, ToDlq, ToTier
from schemas.errors import NotFramed

OpenDesk = Callable[..., Any]
PLACE = ("orders", 0)


def state(server: Redis, record: Record) -> dict[str, str]:
    with redis.Redis.from_url(server.url) as client:
        found = client.hgetall(f"idem:email:0:{record.event_id}")
        return {name.decode(): value.decode(errors="replace") for name, value in found.items()}


def started(desk: Any, **fields: Any) -> Record:
    record: Record = desk.deliver(**fields)
    assert desk.admit() == [[record]]
    return record


def end_leases(server: Redis) -> None:
    with redis.Redis.from_url(server.url) as client:
        for key in client.scan_iter("idem:*"):
            client.hset(key, "exp", 1)


def test_the_offset_is_resolved_only_after_redis_has_the_done_mark(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    record = started(desk)
    redis_server.stop()
    desk.finish(record)
    assert desk.unresolved() == 1
    for _ in range(3):
        with pytest.raises(ClaimsDown):
            desk.settle()
        assert (desk.unresolved(), len(desk.settlement)) == (1, 1)
    redis_server.start()
    desk.settle()
    assert (desk.unresolved(), len(desk.settlement), len(desk.in_flight)) == (0, 0, 0)
    assert state(redis_server, record)["st"] == "C"


def test_until_its_handler_has_ended_a_record_is_claimed_and_unresolved(
    open_desk: OpenDesk, redis_server: Redis
) -> None:
    desk = open_desk()
    record = started(desk)
    desk.settlement.renew()
    desk.settle()
    assert (desk.unresolved(), state(redis_server, record)["st"]) == (1, "P")
    assert desk.ledger.to_commit(lambda _place: 100) == {}


@pytest.mark.parametrize(
    ("error", "verdict", "unsure"),
    [
        (Retry("451"), ToTier(1), "0"),
        (ValueError("surprise"), ToTier(1), "1"),
        (DeadlinePassed("late"), ToTier(1), "1"),
        (Reject("no"), ToDlq(Disposition.PERMANENT), "0"),
    ],
)
def test_a_failure_is_released_and_resolved_only_after_its_copy_is_confirmed_and_never_marked_done(
    open_desk: OpenDesk, redis_server: Redis, error: Exception, verdict: ToTier | ToDlq, unsure: str
) -> None:
    desk = open_desk()
    record = started(desk)
    desk.finish(record, error)
    for _ in range(3):
        desk.settle()
    ((ticket, sent, failure, _),) = desk.copies.sent
    assert (ticket, sent, failure.attempts) == (record, verdict, 1)
    assert (desk.unresolved(), state(redis_server, record)["st"]) == (1, "P")
    desk.copies.confirm()
    desk.settle()
    assert (desk.unresolved(), len(desk.in_flight), len(desk.settlement)) == (0, 0, 0)
    found = state(redis_server, record)
    assert (found["st"], found["unsure"]) == ("R", unsure)
    assert (found["replay"], found["hop"]) == (("0", "1") if isinstance(verdict, ToTier) else ("1", "0"))


def test_the_copy_runs_although_its_source_was_released(open_desk: OpenDesk) -> None:
    desk = open_desk()
    event = order_created()
    desk.finish(started(desk, event=event), Retry("451"))
    desk.copies.confirm()
    desk.settle()
    copy = started(desk, event=event, offset=1, attempts=1)
    assert not copy.maybe_done
    desk.finish(copy)
    desk.settle()
    again = desk.deliver(event, offset=2, attempts=1)
    assert desk.admit() == []
    assert desk.admission.answers[Answer.DONE] == 1
    assert again.token not in desk.in_flight


def test_a_copy_that_is_confirmed_while_redis_is_down_is_released_later(
    open_desk: OpenDesk, redis_server: Redis
) -> None:
    desk = open_desk()
    record = started(desk)
    desk.finish(record, Retry("451"))
    redis_server.stop()
    desk.copies.confirm()
    for _ in range(2):
        with pytest.raises(ClaimsDown):
            desk.settle()
    assert desk.unresolved() == 1
    redis_server.start()
    desk.settle()
    assert (desk.unresolved(), state(redis_server, record)["hop"]) == (0, "1")


def test_the_last_tier_is_followed_by_the_dead_letters(open_desk: OpenDesk) -> None:
    desk = open_desk()
    desk.finish(started(desk, attempts=3), Retry("451"))
    ((_, verdict, failure, pair),) = desk.copies.sent
    assert (verdict, failure.attempts, pair) == (ToDlq(Disposition.EXHAUSTED), 4, (1, 0))


@pytest.mark.parametrize("stage", [Stage.DECODE, Stage.VALIDATE])
def test_what_cannot_be_read_is_a_dead_letter_at_once_and_counts_no_attempt(open_desk: OpenDesk, stage: Stage) -> None:
    desk = open_desk()
    desk.finish(started(desk), NotFramed("no"), stage)
    ((_, verdict, failure, _),) = desk.copies.sent
    assert (verdict, failure.attempts) == (ToDlq(Disposition.POISON), 0)


def test_what_names_no_event_is_a_dead_letter_without_a_claim(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    record = desk.deliver()
    record.event_id = ""
    desk.settlement.unreadable(record)
    desk.settle()
    assert desk.unresolved() == 1
    desk.copies.confirm()
    desk.settle()
    assert desk.unresolved() == 0
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.keys("idem:*") == []


def test_an_outage_burns_nothing_and_is_tried_again_by_itself(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    record = started(desk)
    desk.finish(record, Outage("down"))
    desk.settle()
    assert (desk.copies.sent, desk.unresolved(), len(desk.in_flight)) == ([], 1, 0)
    found = state(redis_server, record)
    assert (found["st"], found["unsure"], found["crashes"]) == ("R", "0", "0")
    assert desk.lanes.held()[HoldReason.OUTAGE] == 1
    waits = desk.lanes.next_time(clock.monotonic())
    assert waits is not None
    assert waits <= 1.0
    threading.Event().wait(waits)
    token = record.token
    assert desk.admit() == [[record]]
    assert (record.token != token, record.maybe_done, record.story.attempts) == (True, False, 0)


def test_a_throttled_group_rests(open_desk: OpenDesk) -> None:
    desk = open_desk()
    desk.finish(started(desk), Throttled("429", after=20.0))
    desk.settle()
    assert 15 < desk.settlement.resting_until - clock.monotonic() <= 20
    assert (desk.copies.sent, desk.unresolved()) == ([], 1)


def test_a_done_mark_that_came_too_late_is_claimed_again_and_not_resolved(
    open_desk: OpenDesk, redis_server: Redis
) -> None:
    slow, heir = open_desk(), open_desk()
    event = order_created()
    record = started(slow, event=event)
    end_leases(redis_server)
    started(heir, event=event)
    slow.finish(record)
    slow.settle()
    assert (slow.unresolved(), slow.copies.sent) == (1, [])
    assert slow.admit() == []
    assert slow.admission.answers[Answer.BUSY] == 1


@pytest.mark.parametrize("error", [None, Retry("451"), ValueError("x"), Outage("down")])
def test_the_result_of_a_lost_claim_is_discarded(
    open_desk: OpenDesk, redis_server: Redis, error: Exception | None
) -> None:
    slow, heir = open_desk(), open_desk()
    event = order_created()
    record = started(slow, event=event)
    end_leases(redis_server)
    owned = started(heir, event=event)
    slow.settlement.renew()
    assert record.lost
    slow.finish(record, error)
    slow.settle()
    assert (slow.copies.sent, slow.unresolved(), len(slow.in_flight)) == ([], 1, 0)
    assert state(redis_server, owned)["tok"] == owned.token


def test_a_renewed_claim_outlives_its_lease(open_desk: OpenDesk) -> None:
    desk, other = open_desk(lease_seconds=0.6), open_desk(lease_seconds=0.6)
    event = order_created()
    record = started(desk, event=event)
    other.deliver(event)
    pause = threading.Event()
    for _ in range(5):
        pause.wait(0.3)
        desk.settlement.renew()
        assert other.admit() == []
    assert not record.lost


@pytest.mark.parametrize("error", [None, Retry("451"), Outage("down")])
def test_what_ends_after_its_partition_went_is_told_to_redis_but_not_to_the_new_assignment(
    open_desk: OpenDesk, redis_server: Redis, error: Exception | None
) -> None:
    desk = open_desk()
    event = order_created()
    old = started(desk, event=event)
    desk.lanes.drop([PLACE])
    desk.ledger.revoke(PLACE)
    desk.ledger.assign(PLACE, 2, 0)
    new = desk.deliver(event, epoch=2)
    desk.finish(old, error)
    desk.copies.confirm()
    desk.settle()
    assert state(redis_server, old)["st"] == ("C" if error is None else "R")
    assert desk.unresolved() == 1
    assert desk.ledger.to_commit(lambda _place: 100) == {}
    if isinstance(error, Outage):
        assert desk.admit() == [[new]]
    else:
        assert desk.admit() == []
        assert desk.unresolved() == 0


def test_a_claim_given_back_unused_leaves_no_trace(open_desk: OpenDesk, redis_server: Redis) -> None:
    desk = open_desk()
    record = started(desk)
    desk.settlement.give_back(record)
    desk.settle()
    found = state(redis_server, record)
    assert (found["st"], found["unsure"], found["crashes"]) == ("R", "0", "0")
    assert desk.admit() == [[record]]
    assert not record.maybe_done


def test_the_result_of_an_abandoned_handler_comes_too_late(open_desk: OpenDesk) -> None:
    desk = open_desk()
    record = started(desk)
    record.abandoned = True
    desk.settlement.failed(record, DeadlinePassed("never came back"))
    desk.finish(record)
    desk.copies.confirm()
    desk.settle()
    assert (desk.unresolved(), len(desk.in_flight)) == (0, 0)


@pytest.mark.parametrize("then", [Retry("451"), Outage("down"), Reject("no")])
def test_what_an_earlier_run_may_have_done_is_not_taken_back_by_a_later_promise(
    open_desk: OpenDesk, redis_server: Redis, then: Exception
) -> None:
    desk = open_desk()
    record = started(desk)
    record.maybe_done = True  # as after a batch call that failed with any error
    desk.finish(record, then)
    desk.copies.confirm()
    desk.settle()
    assert state(redis_server, record)["unsure"] == "1"
