"""Redis evicts claims under memory pressure."""

from collections.abc import Callable

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimRequest, Claims, ClaimsDown, Release
from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.redis import Redis

REQUEST = ClaimRequest("event", "token", b"12345678", (0, 0), alone=True)


@pytest.mark.parametrize(
    "policy",
    ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"],
)
def test_a_server_that_may_evict_is_refused_at_start(
    open_claims: Callable[..., Claims], redis_server: Redis, policy: str
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory-policy", policy)
    with pytest.raises(Misconfigured, match=f"{policy}.*CONFIG SET maxmemory-policy noeviction") as refusal:
        open_claims()
    assert refusal.value.exit_code == 78


def test_a_full_server_counts_as_redis_down_and_forgets_nothing(
    open_claims: Callable[..., Claims], redis_server: Redis
) -> None:
    claims = open_claims()
    done = ClaimRequest("done", "first", b"12345678", (0, 0), alone=True)
    claims.claim([done, REQUEST])
    claims.complete([("done", "first")])
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory", 1)
        for call in (
            lambda: claims.claim([ClaimRequest("new", "new", b"12345678", (0, 0), alone=True)]),
            lambda: claims.renew([("event", "token")]),
            lambda: claims.start("event", "token"),
            lambda: claims.complete([("event", "token")]),
            lambda: claims.release([Release("event", "token", unsure=False, started=True, routed=None)]),
        ):
            with pytest.raises(ClaimsDown, match=r"(?i)maxmemory"):
                call()
        client.config_set("maxmemory", 0)
        assert not client.exists("idem:email:0:new")
    # Nothing of the refused calls was applied, and nothing that was there is gone.
    answers = claims.claim([ClaimRequest("done", "x", b"12345678", (0, 0), alone=True), REQUEST])
    assert [reply.answer for reply in answers] == [Answer.DONE, Answer.OWNED]
    assert claims.complete([("event", "token")]) == [True]
