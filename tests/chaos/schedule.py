"""Pure: which fault strikes when, by a seed; the same seed and the same seconds are the same schedule."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Strike(StrEnum):
    """Every kind of fault."""

    KILL_WORKER = "kill -9 of a worker"
    KILL_RELAY = "kill -9 of a relay"
    KILL_API = "kill -9 of the API"
    FREEZE_WORKER = "a worker is frozen, shorter than its lease"
    FREEZE_WORKER_LONG = "a worker is frozen, longer than its lease"
    FREEZE_RELAY = "a relay is frozen"
    RESTART_WORKER = "a worker is restarted in good order"
    RESTART_RELAY = "a relay is restarted in good order"
    ADD_WORKER = "a worker joins and leaves"
    REMOVE_WORKER = "a worker leaves and comes back"
    RESTART_KAFKA = "the broker is restarted"
    KILL_KAFKA = "kill -9 of the broker"
    FREEZE_KAFKA = "the broker is frozen"
    CUT_KAFKA = "the workers lose their network to the broker"
    RESTART_REDIS = "Redis is restarted"
    KILL_REDIS = "kill -9 of Redis"
    FREEZE_REDIS = "Redis is frozen"
    FLUSH_REDIS = "Redis is emptied"
    CUT_REDIS = "a worker loses its network to Redis"
    RESTART_POSTGRES = "PostgreSQL is restarted"
    FREEZE_POSTGRES = "PostgreSQL is frozen"
    CUT_POSTGRES = "the workers lose their network to PostgreSQL"
    MAIL_DOWN = "the mail server is down"
    CUT_MAIL = "the network to the mail server hangs"


# What a strike hits, so that none hits what is down already; and how long it lasts, in leases.
_WHAT: dict[Strike, tuple[str, float, float]] = {
    Strike.KILL_WORKER: ("worker", 0.0, 0.0),
    Strike.KILL_RELAY: ("relay", 0.0, 0.0),
    Strike.KILL_API: ("api", 0.0, 0.0),
    Strike.FREEZE_WORKER: ("worker", 0.1, 0.45),
    Strike.FREEZE_WORKER_LONG: ("worker", 1.3, 3.0),
    Strike.FREEZE_RELAY: ("relay", 0.5, 2.0),
    Strike.RESTART_WORKER: ("worker", 0.0, 0.0),
    Strike.RESTART_RELAY: ("relay", 0.0, 0.0),
    Strike.ADD_WORKER: ("worker", 2.0, 4.0),
    Strike.REMOVE_WORKER: ("worker", 0.5, 2.0),
    Strike.RESTART_KAFKA: ("kafka", 0.1, 0.5),
    Strike.KILL_KAFKA: ("kafka", 0.1, 0.5),
    Strike.FREEZE_KAFKA: ("kafka", 0.3, 2.0),
    Strike.CUT_KAFKA: ("kafka", 0.3, 2.0),
    Strike.RESTART_REDIS: ("redis", 0.0, 0.8),
    Strike.KILL_REDIS: ("redis", 0.0, 0.8),
    Strike.FREEZE_REDIS: ("redis", 0.1, 2.0),
    Strike.FLUSH_REDIS: ("redis", 0.0, 0.0),
    Strike.CUT_REDIS: ("redis", 0.3, 2.0),
    Strike.RESTART_POSTGRES: ("postgres", 0.0, 0.8),
    Strike.FREEZE_POSTGRES: ("postgres", 0.1, 1.0),
    Strike.CUT_POSTGRES: ("postgres", 0.2, 1.5),
    Strike.MAIL_DOWN: ("mail", 0.3, 2.0),
    Strike.CUT_MAIL: ("mail", 0.3, 1.0),
}
GAP_SECONDS = (0.5, 5.0)
QUIET_SECONDS = 5.0
"""Time at the start in which work begins to flow."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: when it begins (seconds from the start), which kind, whom (a number to choose by), how long."""

    at: float
    strike: Strike
    target: int
    seconds: float


def plan(seed: int, seconds: float, lease: float = 4.0) -> list[Planned]:
    """Return the faults of a run, by their begin.

    The kinds come in shuffled rounds, so that each occurs before any occurs a second time.
    """
    chance = random.Random(seed)
    busy: dict[str, float] = {}
    planned: list[Planned] = []
    at = QUIET_SECONDS
    for strike in _rounds(chance):
        what, least, most = _WHAT[strike]
        lasts = round(lease * chance.uniform(least, most), 2)
        target = chance.randrange(1_000)
        at += chance.uniform(*GAP_SECONDS)
        # Two workers may be down at once; two faults of one server would be one, longer.
        begins = at if what == "worker" else max(at, busy.get(what, 0.0))
        if at >= seconds:
            break
        if begins + lasts < seconds:
            planned.append(Planned(round(begins, 2), strike, target, lasts))
            busy[what] = begins + lasts + lease
    return sorted(planned, key=lambda one: one.at)


def _rounds(chance: random.Random) -> Iterator[Strike]:
    while True:
        deck = list(Strike)
        chance.shuffle(deck)
        yield from deck
