"""A POISON_CRASH is replayed after the fix and refused again for the rest of the retention."""

from collections.abc import Callable, Iterator

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimRequest, Claims, Release
from orderflow.ops.stack.redis import Redis

KEY = "idem:email:0:event"


def request(token: str, pair: tuple[int, int] = (0, 0), *, alone: bool = True) -> ClaimRequest:
    return ClaimRequest("event", token, b"12345678", pair, alone=alone)


@pytest.fixture
def client(redis_server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


@pytest.fixture
def poisoned(open_claims: Callable[..., Claims], client: redis.Redis) -> Claims:
    """An event that took three processes with it, claimed once more."""
    claims = open_claims()
    for number in range(3):
        claims.claim([request(f"dies-{number}")])
        claims.start("event", f"dies-{number}")
        client.hset(KEY, "exp", 1)
    [reply] = claims.claim([request("poison", alone=False)])
    assert (reply.answer, reply.crashes) == (Answer.POISON, 3)
    return claims


def test_the_replay_runs(poisoned: Claims) -> None:
    poisoned.release([Release("event", "poison", unsure=True, started=True, routed=(1, 0))])
    [reply] = poisoned.claim([request("replay", (1, 0), alone=False)])
    assert (reply.answer, reply.crashes) == (Answer.UNSURE, 0)
    assert poisoned.complete([("event", "replay")]) == [True]


def test_the_replay_runs_although_the_router_died_before_its_release(poisoned: Claims, client: redis.Redis) -> None:
    client.hset(KEY, "exp", 1)
    [reply] = poisoned.claim([request("replay", (1, 0), alone=False)])
    assert (reply.answer, reply.crashes) == (Answer.UNSURE, 0)


def test_copies_older_than_the_dead_letter_are_dropped(poisoned: Claims) -> None:
    poisoned.release([Release("event", "poison", unsure=True, started=True, routed=(1, 0))])
    for pair in ((0, 0), (0, 3), (0, 1_000)):
        assert poisoned.claim([request("old", pair)])[0].answer is Answer.SUPERSEDED


def test_a_replay_that_kills_again_is_poison_again(poisoned: Claims, client: redis.Redis) -> None:
    poisoned.release([Release("event", "poison", unsure=True, started=True, routed=(1, 0))])
    answers = []
    for number in range(4):
        [reply] = poisoned.claim([request(f"again-{number}", (1, 0))])
        poisoned.start("event", f"again-{number}")
        client.hset(KEY, "exp", 1)
        answers.append(reply.answer)
    assert answers == [Answer.UNSURE, Answer.UNSURE, Answer.UNSURE, Answer.POISON]
