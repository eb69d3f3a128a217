"""Random walks, how each ends, and the short form of one that ended badly."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.model.promises import Broken
from tests.model.system import System, any_system
from tests.model.world import Step, World

MOST_STEPS_TO_REST = 3_000
HEAL: Step = ("heal",)
_SHRINK_SECONDS = 20.0
_WEIGHTS = {
    "boot": 1.0,
    "thaw": 1.0,
    "expel": 2.0,
    "mend": 1.0,
    "kill": 1.0,
    "freeze": 1.0,
    "kick": 1.0,
    "cut": 1.0,
    "revoke": 1.0,
    "fatal": 1.0,
    "forget": 0.3,
    "down": 0.5,
    "scripts": 0.3,
    "renew": 2.0,
    "commit": 4.0,
    "minute": 0.5,
    "late call": 2.0,
    "lease ends": 4.0,
}
_WITHOUT_AN_ANSWER = 3.0
_MOODS = (0.1, 1.0, 1.0, 1.0, 6.0)
_ELSE = 10.0

Open = Callable[[System], World]


@dataclass
class Trace:
    """A system and the steps that were done in it; None stands for fair steps until nothing is left to do."""

    system: System
    steps: list[Step | None]

    def to_json(self) -> str:
        """Return it as JSON, a step a line."""
        steps = ",\n".join(map(json.dumps, self.steps))
        return f'{{"system": {json.dumps(self.system.told())},\n"steps": [\n{steps}\n]}}'

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Read it again."""
        told = json.loads(text)
        return cls(System.of(told["system"]), [tuple(step) if step else None for step in told["steps"]])

    def __str__(self) -> str:
        """One step a line."""
        told = [f"{name}: {value}" for name, value in self.system.told().items()]
        steps = [
            " ".join(map(str, step)) if step else "... heal, then fair steps until nothing is left"
            for step in self.steps
        ]
        return "\n".join([*told, "", *steps])


def walk(seed: int, open_world: Open) -> set[str]:
    """Walk once and return what was seen; raises `Broken`, with its short form as a note."""
    chance = random.Random(seed)
    system = any_system(chance)
    trace = Trace(system, [])
    # What is rare differs from walk to walk, or it would be rare in all of them.
    moods: dict[str, float] = defaultdict(lambda: chance.choice(_MOODS))
    try:
        world = open_world(system)
        for _ in range(chance.choice([40, 100, 200])):
            steps = world.steps()
            if not steps:
                break
            [step] = chance.choices(steps, [_weight(step) * moods[step[0]] for step in steps])
            trace.steps.append(step)
            world.do(step)
        come_to_rest(world, chance, trace.steps)
    except Broken as broken:
        short = shortened(trace, str(broken), open_world)
        broken.add_note(f"seed {seed}, shortened:\n{short}\n\n{short.to_json()}")
        raise
    return world.seen


def come_to_rest(world: World, chance: random.Random, done: list[Step | None]) -> None:
    """Heal everything, take fair steps until nothing is left to do, and judge the end; `done` gets the steps."""
    before = len(done)
    done.append(HEAL)
    world.do(HEAL)
    for _ in range(MOST_STEPS_TO_REST):
        if world.at_rest():
            done[before:] = [None]
            world.judge()
            return
        steps = world.steps(faults=False)
        if not steps:
            break
        step = chance.choice(steps)
        done.append(step)
        world.do(step)
    done[before:] = [None]
    raise Broken("it does not come to rest")


def again(trace: Trace, open_world: Open) -> None:
    """Do the steps of a trace that are possible, and come to rest where it says so. Raises `Broken`."""
    world = open_world(trace.system)
    for _ in _done(trace, world):
        pass


def _done(trace: Trace, world: World) -> Iterator[Step | None]:
    """Do what is possible of a trace; yields each step before it is done."""
    for step in trace.steps:
        if step is None:
            yield None
            come_to_rest(world, random.Random(1), [])
        elif step == HEAL or _plain(step) in map(_plain, world.steps()):
            yield step
            world.do(step)


def shortened(trace: Trace, message: str, open_world: Open) -> Trace:
    """Return the shortest trace that was found to break the same promise."""
    until = time.monotonic() + _SHRINK_SECONDS
    best = _breaks(trace, message, open_world) or trace
    for size in (64, 32, 16, 8, 4, 2, 1, 1):
        at = 0
        while at < len(best.steps) and time.monotonic() < until:
            less = Trace(best.system, best.steps[:at] + best.steps[at + size :])
            found = _breaks(less, message, open_world)
            if found is not None and len(found.steps) < len(best.steps):
                best = found
            else:
                at += size
    return best


def _breaks(trace: Trace, message: str, open_world: Open) -> Trace | None:
    done: list[Step | None] = []
    try:
        for step in _done(trace, open_world(trace.system)):
            done.append(step)  # noqa: PERF402 - what was done before it broke counts
    except Broken as broken:
        return Trace(trace.system, done) if _kind(str(broken)) == _kind(message) else None
    return None


def _kind(message: str) -> Sequence[str]:
    """What was broken, whatever the event and the numbers."""
    return [word for word in message.split() if len(word) > 2 and word.isalpha()]


def _plain(step: Step) -> str:
    return json.dumps(step)


def _weight(step: Step) -> float:
    if step[-1] in {"lost", "late", "unheard"}:
        return _WITHOUT_AN_ANSWER
    return _WEIGHTS.get(step[0], _ELSE)
