"""The transitions of a claim on real servers, and every call once more after its answer was lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
import redis

from consumers.runtime.claims import (
    Answer,
    ClaimReply,
    ClaimRequest,
    Claims,
    ClaimsDown,
    Release,
    connect,
    payload_hash,
)
from orderflow.core import clock
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import RedisSettings
from orderflow.ops.stack.redis import Redis

KEY = "idem:email:0:event"
BYTES = payload_hash(b"an event")


@pytest.fixture
def claims(open_claims: Callable[..., Claims]) -> Claims:
    return open_claims()


@pytest.fixture
def client(redis_server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url, decode_responses=False) as made:
        yield made


def claim(
    claims: Claims, token: str, pair: tuple[int, int] = (0, 0), *, alone: bool = True, value: bytes = BYTES
) -> ClaimReply:
    [reply] = claims.claim([ClaimRequest("event", token, value, pair, alone=alone)])
    return reply


def end_the_lease(client: redis.Redis) -> None:
    """What waiting for it would do."""
    assert client.hget(KEY, "st") == b"P"
    client.hset(KEY, "exp", 1)


def state(client: redis.Redis) -> dict[str, bytes]:
    return {str(name, "ascii"): value for name, value in cast("dict[bytes, bytes]", client.hgetall(KEY)).items()}


def test_a_first_claim_owns(claims: Claims) -> None:
    assert claim(claims, "a") == ClaimReply(Answer.OWNED, 0, 0, "")


def test_answers_come_in_the_order_of_the_requests(claims: Claims) -> None:
    claims.claim([ClaimRequest(f"e{i}", "other", BYTES, (0, 0), alone=False) for i in range(0, 100, 3)])
    replies = claims.claim([ClaimRequest(f"e{i}", f"me/{i}", BYTES, (0, 0), alone=False) for i in range(100)])
    assert [reply.answer is Answer.BUSY for reply in replies] == [i % 3 == 0 for i in range(100)]


def test_no_requests_need_no_server(redis_server: Redis) -> None:
    redis_server.stop()
    client = connect(RedisSettings.model_validate({"url": redis_server.url}))
    claims = Claims(client, "email", lease_seconds=30, ttl=timedelta(hours=72))
    assert claims.claim([]) == []
    assert claims.complete([]) == []
    assert claims.release([]) == []


def test_two_claims_of_one_event_in_one_call_are_one_owner_and_one_busy(claims: Claims) -> None:
    first, second = claims.claim([ClaimRequest("event", token, BYTES, (0, 0), alone=False) for token in ("a", "b")])
    assert first.answer is Answer.OWNED
    assert (second.answer, second.owner) == (Answer.BUSY, "a")


def test_a_completed_event_is_done_for_everybody(claims: Claims) -> None:
    claim(claims, "a")
    assert claims.complete([("event", "a")]) == [True]
    assert claim(claims, "b").answer is Answer.DONE
    assert claim(claims, "b", (3, 2)).answer is Answer.DONE


def test_the_same_id_with_other_bytes_is_a_mismatch_in_every_state(claims: Claims, client: redis.Redis) -> None:
    other = payload_hash(b"another event")
    claim(claims, "a")
    assert claim(claims, "b", value=other).answer is Answer.MISMATCH
    claims.release([Release("event", "a", unsure=False, started=True, routed=(0, 1))])
    assert claim(claims, "b", (5, 5), value=other).answer is Answer.MISMATCH
    claim(claims, "c", (0, 1))
    claims.complete([("event", "c")])
    assert claim(claims, "b", value=other).answer is Answer.MISMATCH
    assert state(client)["st"] == b"C"


@pytest.mark.parametrize("call", ["start", "complete", "renew", "release"])
def test_a_token_that_lost_its_lease_is_told_so_and_changes_nothing(
    claims: Claims, client: redis.Redis, call: str
) -> None:
    claim(claims, "old")
    end_the_lease(client)
    assert claim(claims, "new").answer is Answer.UNSURE
    before = state(client)
    said = {
        "start": lambda: [claims.start("event", "old")],
        "complete": lambda: claims.complete([("event", "old")]),
        "renew": lambda: claims.renew([("event", "old")]),
        "release": lambda: claims.release([Release("event", "old", unsure=True, started=True, routed=(9, 9))]),
    }[call]()
    assert said == [False]
    assert state(client) == before


@pytest.mark.parametrize("call", ["start", "complete", "renew", "release"])
def test_a_claim_that_redis_lost_is_lost(claims: Claims, client: redis.Redis, call: str) -> None:
    claim(claims, "a")
    client.flushall()
    said = {
        "start": lambda: [claims.start("event", "a")],
        "complete": lambda: claims.complete([("event", "a")]),
        "renew": lambda: claims.renew([("event", "a")]),
        "release": lambda: claims.release([Release("event", "a", unsure=True, started=True, routed=(9, 9))]),
    }[call]()
    assert said == [False]
    assert client.keys("idem:*") == []


def test_a_lease_that_nobody_took_may_still_be_completed(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "a")
    end_the_lease(client)
    assert claims.complete([("event", "a")]) == [True]
    assert claim(claims, "b").answer is Answer.DONE


def test_an_older_copy_is_superseded_and_an_equal_or_later_one_runs(claims: Claims) -> None:
    claim(claims, "a")
    claims.release([Release("event", "a", unsure=False, started=True, routed=(0, 1))])
    assert claim(claims, "again").answer is Answer.SUPERSEDED
    assert claim(claims, "copy", (0, 1)).answer is Answer.OWNED
    claims.release([Release("event", "copy", unsure=False, started=True, routed=(1, 0))])
    assert claim(claims, "duplicate", (0, 7)).answer is Answer.SUPERSEDED
    assert claim(claims, "replay", (1, 0)).answer is Answer.OWNED


def test_an_old_copy_is_superseded_while_the_later_one_runs_or_has_died(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "copy", (0, 2))
    assert claim(claims, "old", (0, 1)).answer is Answer.SUPERSEDED
    end_the_lease(client)
    assert claim(claims, "old", (0, 1)).answer is Answer.SUPERSEDED
    assert claim(claims, "copy again", (0, 2)).answer is Answer.UNSURE


def test_routed_never_goes_back(claims: Claims) -> None:
    claim(claims, "copy", (1, 2))
    claims.release([Release("event", "copy", unsure=False, started=True, routed=(0, 9))])
    assert claim(claims, "old", (0, 9)).answer is Answer.SUPERSEDED
    assert claim(claims, "same", (1, 2)).answer is Answer.OWNED


def test_pairs_compare_as_numbers(claims: Claims) -> None:
    claim(claims, "a", (0, 9))
    claims.release([Release("event", "a", unsure=False, started=True, routed=(0, 10))])
    assert claim(claims, "b", (0, 9)).answer is Answer.SUPERSEDED
    assert claim(claims, "b", (0, 10)).answer is Answer.OWNED


def test_a_stolen_lease_waits_until_nothing_runs_beside_it(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "dead")
    end_the_lease(client)
    assert claim(claims, "beside others", alone=False) == ClaimReply(Answer.ALONE, 1, 0, "")
    assert claims.complete([("event", "dead")]) == [False]
    assert claims.complete([("event", "beside others")]) == [False]
    assert claim(claims, "solo") == ClaimReply(Answer.UNSURE, 1, 0, "")


def test_only_an_announced_run_counts_beyond_the_first_interruption(claims: Claims, client: redis.Redis) -> None:
    for turn in range(5):
        assert claim(claims, f"merely held {turn}").crashes == min(turn, 1)
        end_the_lease(client)
    assert claim(claims, "announced").crashes == 1
    assert claims.start("event", "announced")
    end_the_lease(client)
    assert claim(claims, "second").crashes == 2


def test_an_announcement_does_not_outlive_its_run(claims: Claims, client: redis.Redis) -> None:
    for token in ("first", "second"):
        claim(claims, token)
        end_the_lease(client)
    claim(claims, "third")
    claims.start("event", "third")
    claims.release([Release("event", "third", unsure=False, started=False, routed=None)])
    claim(claims, "fourth")
    end_the_lease(client)
    assert claim(claims, "fifth").crashes == 1


# Lost answers: the same call with the same token once more.


def test_a_repeated_claim_gets_its_first_answer(claims: Claims, client: redis.Redis) -> None:
    assert claim(claims, "a").answer is claim(claims, "a").answer is Answer.OWNED
    end_the_lease(client)
    assert claim(claims, "b") == claim(claims, "b") == ClaimReply(Answer.UNSURE, 1, 0, "")


def test_a_repeated_claim_that_is_alone_no_more_still_gets_its_first_answer(
    claims: Claims, client: redis.Redis
) -> None:
    claim(claims, "a")
    end_the_lease(client)
    assert claim(claims, "b", alone=True) == claim(claims, "b", alone=False) == ClaimReply(Answer.UNSURE, 1, 0, "")


def test_a_repeated_claim_takes_a_lease_from_now(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "a")
    end_the_lease(client)
    assert claim(claims, "a").answer is Answer.OWNED
    assert int(state(client)["exp"]) > claims.time_ms() + 29_000
    assert claim(claims, "b").answer is Answer.BUSY


def test_a_repeated_poison_is_poison(claims: Claims, client: redis.Redis) -> None:
    die_three_times(claims, client)
    assert claim(claims, "a") == claim(claims, "a") == ClaimReply(Answer.POISON, 3, 0, "")


def test_a_repeated_start_is_one_announcement(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "a")
    end_the_lease(client)
    claim(claims, "b")
    assert claims.start("event", "b") is claims.start("event", "b") is True
    assert claim(claims, "b").answer is Answer.UNSURE  # repeated after START: still announced
    end_the_lease(client)
    assert claim(claims, "c").crashes == 2


def test_a_repeated_complete_says_yes_again(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "a")
    assert claims.complete([("event", "a"), ("event", "a")]) == [True, True]
    assert claims.renew([("event", "a")]) == [True]  # a renewal that was under way beside it
    assert not claims.start("event", "a")
    assert state(client)["st"] == b"C"
    assert claim(claims, "a").answer is Answer.DONE


def test_a_repeated_release_says_lost_and_changes_nothing(claims: Claims, client: redis.Redis) -> None:
    claim(claims, "a")
    release = Release("event", "a", unsure=True, started=True, routed=(0, 1))
    assert claims.release([release]) == [True]
    before = state(client)
    assert claims.release([release]) == [False]
    assert state(client) == before


def test_a_release_that_arrives_after_the_next_owner_s_claim_takes_nothing_from_him(claims: Claims) -> None:
    release = Release("event", "a", unsure=False, started=False, routed=None)
    claim(claims, "a")
    claims.release([release])
    claim(claims, "b")
    assert claims.release([release]) == [False]
    assert claim(claims, "c").answer is Answer.BUSY


def die_three_times(claims: Claims, client: redis.Redis) -> None:
    for number in range(3):
        claim(claims, f"dies {number}")
        claims.start("event", f"dies {number}")
        end_the_lease(client)


def test_a_dead_letter_takes_its_crashes_along_even_if_its_release_forgets_to_say_started(
    claims: Claims, client: redis.Redis
) -> None:
    die_three_times(claims, client)
    assert claim(claims, "poison").answer is Answer.POISON
    claims.release([Release("event", "poison", unsure=True, started=False, routed=(1, 0))])
    assert claim(claims, "replay", (1, 0), alone=False) == ClaimReply(Answer.UNSURE, 0, 0, "")


# The server.


def test_scripts_that_the_server_forgot_are_loaded_again(claims: Claims, client: redis.Redis) -> None:
    client.script_flush()
    assert claim(claims, "a").answer is Answer.OWNED
    client.script_flush()
    assert claims.start("event", "a")
    client.script_flush()
    assert claims.complete([("event", "a")]) == [True]


def test_scripts_forgotten_in_the_middle_of_a_call_repeat_only_what_was_not_applied(
    claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims.claim([ClaimRequest(f"e{i}", "t", BYTES, (0, 0), alone=False) for i in range(10)])
    make = claims._redis.pipeline

    def flushed_half_way(*, transaction: bool) -> redis.client.Pipeline:
        monkeypatch.undo()
        pipeline = make(transaction=transaction)
        execute, queue = pipeline.execute, pipeline.evalsha
        calls = 0

        def evalsha(*arguments: Any) -> None:
            nonlocal calls
            if calls == 5:
                pipeline.script_flush()
            calls += 1
            queue(*arguments)

        def without_the_flush(*, raise_on_error: bool) -> list[object]:
            answers = execute(raise_on_error=raise_on_error)
            return answers[:5] + answers[6:]

        monkeypatch.setattr(pipeline, "evalsha", evalsha)
        monkeypatch.setattr(pipeline, "execute", without_the_flush)
        return pipeline

    monkeypatch.setattr(claims._redis, "pipeline", flushed_half_way)
    # Repeating a RELEASE that was applied would answer False.
    releases = [Release(f"e{i}", "t", unsure=False, started=True, routed=None) for i in range(10)]
    assert claims.release(releases) == [True] * 10


def test_a_restarted_server_is_used_again(claims: Claims, redis_server: Redis) -> None:
    claim(claims, "a")
    redis_server.stop()
    with pytest.raises(ClaimsDown):
        claim(claims, "b")
    redis_server.start()
    assert answer_soon(lambda: claim(claims, "a")).answer is Answer.OWNED


def answer_soon(call: Callable[[], ClaimReply]) -> ClaimReply:
    """The first call after a restart may find its old connection closed."""
    try:
        return call()
    except ClaimsDown:
        return call()


def test_a_server_that_hangs_costs_little_and_its_late_answers_are_never_taken_for_others(
    claims: Claims, redis_server: Redis, client: redis.Redis
) -> None:
    claims.claim([ClaimRequest("warm", "up", BYTES, (0, 0), alone=False)])
    redis_server.pause()
    try:
        for name, call in {
            "claim": lambda: claims.claim(
                [ClaimRequest(f"e{i}", f"t{i}", BYTES, (0, 0), alone=False) for i in range(100)]
            ),
            "time": claims.time_ms,
        }.items():
            began = clock.monotonic()
            with pytest.raises(ClaimsDown):
                call()
            assert clock.monotonic() - began < 2.0, name
    finally:
        redis_server.resume()
    # The hung calls are applied now; their answers must not be read by anybody.
    assert claims.complete([("warm", "up"), ("nothing", "there")]) == [True, False]
    replies = claims.claim([ClaimRequest(f"e{i}", f"t{i}", BYTES, (0, 0), alone=False) for i in range(100)])
    assert {reply.answer for reply in replies} == {Answer.OWNED}
    assert len(client.keys("idem:email:0:e*")) == 100


def test_an_interrupt_during_a_call_leaves_no_answer_behind(redis_server: Redis) -> None:
    patient = connect(RedisSettings.model_validate({"url": redis_server.url, "timeout_seconds": 60.0}))
    claims = Claims(patient, "email", lease_seconds=30.0, ttl=timedelta(hours=72))
    claims.load()
    claim(claims, "a")
    redis_server.pause()
    try:
        main, pid = threading.main_thread().ident, os.getpid()
        assert main is not None
        threading.Timer(0.5, os.kill, (pid, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            claims.complete([("event", "a")])
    finally:
        redis_server.resume()
    [reply] = claims.claim([ClaimRequest("other", "b", BYTES, (0, 0), alone=False)])
    assert reply == ClaimReply(Answer.OWNED, 0, 0, "")


def test_a_replica_counts_as_down(claims: Claims, client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(ClaimsDown):
            claim(claims, "a")
    finally:
        client.replicaof("NO", "ONE")
    assert claim(claims, "a").answer is Answer.OWNED


def test_one_error_among_many_answers_makes_the_whole_call_unknown(claims: Claims, client: redis.Redis) -> None:
    client.set("idem:email:0:e1", "not a hash")
    with pytest.raises(ClaimsDown, match="WRONGTYPE"):
        claims.claim([ClaimRequest(f"e{i}", "t", BYTES, (0, 0), alone=False) for i in range(3)])


def test_a_server_that_does_not_answer_is_named_with_its_setting_and_without_its_password() -> None:
    client = connect(RedisSettings.model_validate({"url": "redis://:secret@127.0.0.1:1/0"}))
    with pytest.raises(Misconfigured, match="ORDERFLOW_REDIS__URL") as refusal:
        Claims(client, "email", lease_seconds=30, ttl=timedelta(hours=72)).load()
    assert "127.0.0.1:1" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_new_idempotency_epoch_forgets_what_was_done(open_claims: Callable[..., Claims], client: redis.Redis) -> None:
    old = open_claims()
    claim(old, "a")
    old.complete([("event", "a")])
    client.set("epoch:email", 3)
    new = open_claims()
    assert new.idempotency_epoch == 3
    assert claim(new, "b").answer is Answer.OWNED
    assert client.exists("idem:email:3:event")


def test_a_broken_epoch_is_refused(open_claims: Callable[..., Claims], client: redis.Redis) -> None:
    client.set("epoch:email", "soon")
    with pytest.raises(Misconfigured, match="epoch:email"):
        open_claims()


def test_groups_do_not_meet(open_claims: Callable[..., Claims]) -> None:
    assert claim(open_claims("email"), "a").answer is Answer.OWNED
    assert claim(open_claims("audit"), "b").answer is Answer.OWNED


def test_the_time_is_the_server_s(claims: Claims) -> None:
    assert abs(claims.time_ms() - clock.wall_ms()) < 5_000


def test_no_value_and_an_empty_value_are_two_payloads() -> None:
    assert payload_hash(None) != payload_hash(b"")
    assert {len(payload_hash(value)) for value in (None, b"", b"x" * 1_000_000)} == {8}
