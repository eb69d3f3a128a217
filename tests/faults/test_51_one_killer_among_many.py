"""One record that kills the process is claimed beside 64 others, three times. Here: what Redis makes of it."""

from collections.abc import Callable

import redis

from consumers.runtime.claims import Answer, ClaimRequest, Claims
from orderflow.ops.stack.redis import Redis

KILLER = "event-17"
EVENTS = [f"event-{number}" for number in range(65)]


class Killed(Exception):
    """The process has died."""


def work(claims: Claims, life: int, done: set[str]) -> set[str]:
    """One life of a worker that keeps the rule: a record answered ALONE is claimed when nothing else is held.

    Returns the poison that it met; raises `Killed` when the killer runs.
    """
    tokens = {event: f"life-{life}/{event}" for event in EVENTS}
    requests = [ClaimRequest(event, tokens[event], b"12345678", (0, 0), alone=False) for event in EVENTS]
    replies = dict(zip(EVENTS, claims.claim(requests), strict=True))
    poison = {event for event, reply in replies.items() if reply.answer is Answer.POISON}
    if any(reply.answer is Answer.OWNED for reply in replies.values()) and KILLER not in poison | done:
        raise Killed  # all of them run beside each other, and one of them kills
    for event in (event for event, reply in replies.items() if reply.answer is Answer.ALONE):
        token = tokens[event] + "/alone"
        [reply] = claims.claim([ClaimRequest(event, token, b"12345678", (0, 0), alone=True)])
        assert reply.answer is Answer.UNSURE
        assert claims.start(event, token)
        if event == KILLER:
            raise Killed
        assert claims.complete([(event, token)]) == [True]
        done.add(event)
    return poison


def test_exactly_the_killer_is_poison(open_claims: Callable[..., Claims], redis_server: Redis) -> None:
    done: set[str] = set()
    poison: set[str] = set()
    deaths = 0
    with redis.Redis.from_url(redis_server.url) as client:
        for life in range(10):
            try:
                poison = work(open_claims(), life, done)
            except Killed:
                deaths += 1
            for key in client.scan_iter("idem:*"):
                if client.hget(key, "st") == b"P":
                    client.hset(key, "exp", 1)  # the dead worker's leases run out
            if poison:
                break
    assert poison == {KILLER}
    assert done == set(EVENTS) - {KILLER}
    assert deaths == 3
