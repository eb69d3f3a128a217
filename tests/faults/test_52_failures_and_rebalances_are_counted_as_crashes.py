"""An ordinary transient failure, or three clean rebalances, are counted as crashes."""

from collections.abc import Callable

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimRequest, Claims, Release
from orderflow.ops.stack.redis import Redis


def request(token: str, hop: int = 0, *, alone: bool = False) -> ClaimRequest:
    return ClaimRequest("event", token, b"12345678", (0, hop), alone=alone)


def test_a_failure_in_each_tier_is_no_crash_and_the_last_tier_is_reached(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    for hop in range(4):  # the source, then 1 s, 5 s, 30 s
        [reply] = claims.claim([request(f"try-{hop}", hop)])
        assert (reply.answer, reply.crashes) == (Answer.OWNED, 0)
        assert claims.release([Release("event", f"try-{hop}", unsure=False, started=True, routed=(0, hop + 1))])


def test_clean_rebalances_are_no_crashes(open_claims: Callable[..., Claims]) -> None:
    for turn in range(5):
        claims = open_claims()
        [reply] = claims.claim([request(f"member-{turn}")])
        assert (reply.answer, reply.crashes) == (Answer.OWNED, 0)
        claims.release([Release("event", f"member-{turn}", unsure=False, started=False, routed=None)])


@pytest.mark.parametrize(("started", "left"), [(True, 0), (False, 1)])
def test_a_crash_is_forgotten_when_a_run_comes_back_and_only_then(
    open_claims: Callable[..., Claims], redis_server: Redis, *, started: bool, left: int
) -> None:
    claims = open_claims()
    claims.claim([request("dead")])
    with redis.Redis.from_url(redis_server.url) as client:
        client.hset("idem:email:0:event", "exp", 1)
    claims.claim([request("alive", alone=True)])
    claims.release([Release("event", "alive", unsure=False, started=started, routed=None)])
    [reply] = claims.claim([request("next", alone=True)])
    assert (reply.answer, reply.crashes) == (Answer.UNSURE, left)
