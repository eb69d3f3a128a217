"""Crash between "set" and "expire" leaves a lock for ever."""

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import redis

from consumers.runtime.claims import ClaimRequest, Claims, ClaimsDown, Release
from orderflow.ops.stack.redis import Redis

TTL = timedelta(hours=1)


def claim(claims: Claims, token: str, pair: tuple[int, int] = (0, 0), *, alone: bool = True) -> None:
    claims.claim([ClaimRequest("event", token, b"12345678", pair, alone=alone)])


def transitions(claims: Claims, client: redis.Redis) -> Iterator[str]:
    """Every transition once, each of them a write."""
    claim(claims, "a")
    yield "CLAIM of nothing"
    claim(claims, "a")
    yield "CLAIM again with the same token"
    claims.start("event", "a")
    yield "START"
    claims.renew([("event", "a")])
    yield "RENEW"
    client.hset("idem:email:0:event", "exp", 1)
    claim(claims, "b", alone=False)
    yield "ALONE, the stolen lease noted"
    claim(claims, "b")
    yield "CLAIM of a stolen lease"
    claims.release([Release("event", "b", unsure=False, started=False, routed=None)])
    yield "RELEASE of what never started"
    claim(claims, "c")
    claims.release([Release("event", "c", unsure=True, started=True, routed=(0, 1))])
    yield "RELEASE with a copy"
    claim(claims, "d", (0, 1))
    claims.complete([("event", "d")])
    yield "COMPLETE"


def test_every_transition_sets_the_key_s_end(open_claims: Callable[..., Claims], redis_server: Redis) -> None:
    claims = open_claims(ttl=TTL)
    with redis.Redis.from_url(redis_server.url) as client:
        seen = 0
        for name in transitions(claims, client):
            left = client.pttl("idem:email:0:event")
            assert 3_590_000 < left <= 3_600_000, name
            client.persist("idem:email:0:event")  # whatever comes next must set it again
            seen += 1
        assert seen == 9


def claim_for_ever(claims: Claims) -> None:
    for number in itertools.count():
        events = [f"{number}-{i}" for i in range(50)]
        claims.claim([ClaimRequest(event, event, b"12345678", (0, 0), alone=False) for event in events])
        claims.complete([(event, event) for event in events[:25]])


def test_a_server_killed_among_claims_comes_back_without_an_endless_key(
    open_claims: Callable[..., Claims], redis_server: Redis
) -> None:
    claims = open_claims(ttl=TTL)
    timer = threading.Timer(0.3, redis_server.kill)
    timer.start()
    with pytest.raises(ClaimsDown):
        claim_for_ever(claims)
    timer.join()
    redis_server.start()
    with redis.Redis.from_url(redis_server.url) as client:
        keys = list(client.scan_iter("idem:*", count=1000))
        assert keys
        assert [key for key in keys if client.pttl(key) < 0] == []
