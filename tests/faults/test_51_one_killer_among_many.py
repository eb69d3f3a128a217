"""One record that kills the process is claimed beside 64 others, three times. It alone becomes a dead letter."""

import secrets
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from consumers.runtime.claims import Answer, ClaimRequest, Claims
from orderflow.core.settings import Settings
from orderflow.ops.stack.redis import Redis
from orderflow.testing import GroupHarness, order_created, tuned
from schemas import headers as names
from tests.faults.worker_lives import Effects, Life, notes

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


@pytest.mark.long(whole=True)
@pytest.mark.timeout(300)
def test_three_processes_die_and_one_dead_letter_is_left(few_partitions: Settings, tmp_path: Path) -> None:
    settings = tuned(few_partitions, lease_seconds=4.0, commit_seconds=0.2)
    journal = tmp_path / "journal.jsonl"
    orders = [order_created() for _ in range(65)]
    killer = str(orders[5].event_id)
    group = Effects(f"k{secrets.token_hex(4)}", journal, killer=killer)
    deaths = 0
    with GroupHarness(group.group(), settings, workers=0) as harness:
        harness.publish(*orders)
        for _ in range(4):
            with Life(settings, group).living(tmp_path) as worker:
                harness.wait_until(lambda: not worker.is_alive() or harness.lag() == 0, "a death, or the end", 90)
                if worker.is_alive():
                    break
                assert worker.exitcode == -signal.SIGKILL
                deaths += 1
        assert harness.lag() == 0
        (letter,) = harness.dead_letters()
        assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
    assert deaths == 3
    assert (letter.header(names.CE_ID), letter.header(names.DLQ_DISPOSITION)) == (killer, "POISON_CRASH")
    assert len(notes(journal, "run", event=killer)) == deaths
    effects = Counter(line["event"] for line in notes(journal, "effect"))
    assert set(effects) == {str(order.event_id) for order in orders} - {killer}
    # What ran beside it when it first killed ran again, and was told.
    assert all(line["maybe_done"] for line in notes(journal, "effect") if not is_first(line, journal))


def is_first(line: dict[str, object], journal: Path) -> bool:
    return notes(journal, "effect", event=line["event"])[0] == line
