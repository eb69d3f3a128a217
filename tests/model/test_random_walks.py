"""Random walks over the claim, retry, dead-letter and replay protocol: no interleaving breaks a promise.

Real are the Lua scripts on a Redis, `Claims`, `OffsetLedger`, `Commits`, `Router`, and what headers and policy say.
Steps of the walk are the broker (logs, an owner per partition, committed offsets that anybody may set), processes that
die, freeze, come back as zombies or lose sight of Redis, handlers, and an operator who replays dead letters. The worker
(`worker.py`) is a thin driver of its own: it keeps the order effect, COMPLETE, offset, and delivery report, RELEASE,
offset; the runtime's own loop is tested beside real brokers elsewhere. A lease ends when a step says so: it sets the
claim's end into the past. Keys, due times and the expiry of claims are not in it.

A walker of its own, not hypothesis: which steps are possible, and how likely each should be, depends on the state;
after the faults a walk must come to rest by fair steps; and one step costs little more than its call to Redis, so that
hundreds of walks fit into seconds. What breaks is shortened and printed with its seed: `python -m tests.model SEED`
shows it again, and its JSON belongs into `known_traces.toml`.
"""

from collections.abc import Callable

import pytest

from consumers.runtime.claims import Answer
from retry.policy import Disposition
from tests.model.system import FAULTS, System
from tests.model.walk import walk
from tests.model.world import World

Open = Callable[[System], World]

NEVER_HERE = {Disposition.POISON, Disposition.KEY_BLOCKED}  # bytes that nobody can read; strict order
EVERYTHING = {*Answer, *FAULTS, *(set(Disposition) - NEVER_HERE)}


@pytest.mark.timeout(600)
def test_no_walk_breaks_a_promise_and_together_they_see_every_answer_fault_and_disposition(open_world: Open) -> None:
    seen: set[str] = set()
    for seed in range(200):
        seen |= walk(seed, open_world)
    assert seen >= EVERYTHING


@pytest.mark.long(whole=True)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("thousand", range(1, 11))
def test_no_walk_of_many_breaks_a_promise(thousand: int, open_world: Open) -> None:
    for seed in range(thousand * 1_000, thousand * 1_000 + 1_000):
        walk(seed, open_world)
