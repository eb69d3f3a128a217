"""A live owner's record is taken for an orphan because no deadline was stored."""

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimReply, ClaimRequest, Claims
from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.redis import Redis

WORKERS, EVENTS = 8, 50


def race(workers: list[Claims]) -> list[list[ClaimReply]]:
    """All workers claim the same events at the same moment, each on a connection of its own."""
    barrier = threading.Barrier(len(workers))
    answers: list[list[ClaimReply]] = [[] for _ in workers]

    def claim(number: int) -> None:
        barrier.wait()
        for event in range(EVENTS):
            request = ClaimRequest(f"event-{event}", f"worker-{number}/{event}", b"12345678", (0, 0), alone=True)
            answers[number] += workers[number].claim([request])

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_of_many_workers_exactly_one_owns_an_event(open_claims: Callable[..., Claims]) -> None:
    answers = race([open_claims() for _ in range(WORKERS)])
    for event in range(EVENTS):
        of_this_event = [replies[event] for replies in answers]
        assert Counter(reply.answer for reply in of_this_event) == {Answer.OWNED: 1, Answer.BUSY: WORKERS - 1}
        owner = next(number for number, reply in enumerate(of_this_event) if reply.answer is Answer.OWNED)
        for reply in of_this_event:
            if reply.answer is Answer.BUSY:
                assert reply.owner == f"worker-{owner}/{event}"
                assert 0 < reply.busy_ms <= 30_000


def test_of_many_workers_exactly_one_takes_over_when_the_lease_is_over(
    open_claims: Callable[..., Claims], redis_server: Redis
) -> None:
    dead = open_claims()
    dead.claim([ClaimRequest(f"event-{event}", "dead", b"12345678", (0, 0), alone=False) for event in range(EVENTS)])
    with redis.Redis.from_url(redis_server.url) as client:
        for event in range(EVENTS):
            client.hset(f"idem:email:0:event-{event}", "exp", 1)
    answers = race([open_claims() for _ in range(WORKERS)])
    for event in range(EVENTS):
        found = Counter(replies[event].answer for replies in answers)
        assert found == {Answer.UNSURE: 1, Answer.BUSY: WORKERS - 1}


def test_a_renewed_lease_is_not_taken(open_claims: Callable[..., Claims]) -> None:
    owner, other = open_claims(lease_seconds=0.4), open_claims(lease_seconds=0.4)
    request = ClaimRequest("event", "owner", b"12345678", (0, 0), alone=True)
    owner.claim([request])
    three_leases_on = owner.time_ms() + 1_200
    while owner.time_ms() < three_leases_on:
        assert owner.renew([("event", "owner")]) == [True]
        [reply] = other.claim([ClaimRequest("event", "other", b"12345678", (0, 0), alone=True)])
        assert reply.answer is Answer.BUSY


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.0001, float("nan"), float("inf"), float("-inf")])
def test_a_lease_that_excludes_nobody_is_refused(seconds: float) -> None:
    with redis.Redis() as client, pytest.raises(Misconfigured, match="ORDERFLOW_WORKER__LEASE_SECONDS"):
        Claims(client, "email", lease_seconds=seconds, ttl=timedelta(hours=72))


def test_a_lease_that_outlives_its_own_key_is_refused() -> None:
    with redis.Redis() as client, pytest.raises(Misconfigured, match="ORDERFLOW_WORKER__CLAIM_TTL_HOURS"):
        Claims(client, "email", lease_seconds=30, ttl=timedelta(seconds=45))
