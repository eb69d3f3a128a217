"""What a walk is about: which events, how their handlers behave, which faults may happen and how often."""

import random
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from orderflow.core.topics import GroupTopics

GROUP = "model"
SOURCE = "orders"

# What a handler does, run after run; the last word stands for all further runs.
SCRIPTS = (
    ("ok",),
    ("ok",),
    ("retry", "ok"),
    ("retry", "retry", "ok"),
    ("retry",),
    ("odd", "ok"),
    ("reject",),
    ("kill",),
    ("kill", "ok"),
    ("kill", "retry", "ok"),
    ("after", "ok"),
    ("after",),
    ("killafter", "ok"),
    ("unknown",),
)
AFTER_A_REPLAY = (("ok",), ("ok",), ("reject",), ("retry", "ok"), ("kill",))

FAULTS = {
    "kill": "a process dies",
    "freeze": "a process stops for longer than its lease, and comes back",
    "kick": "the broker takes a live worker's partitions without a word to it",
    "rebalance": "partitions change hands in good order",
    "cut": "a worker does not reach Redis for longer than its lease",
    "lost": "Redis does what it was told, its answer is lost",
    "late": "Redis does what it was told, some time after the caller gave up",
    "unheard": "Redis never hears of a call",
    "unknown": "a copy gets a report that says nothing for certain",
    "twice": "a copy is written twice",
    "fatal": "a producer fails for good",
    "commit": "a commit is lost, or its answer is",
    "down": "what the handlers need is down",
    "reread": "a consumer reads again what it has read",
    "scripts": "Redis forgets the scripts",
    "forget": "Redis loses claims",
}


@dataclass(frozen=True)
class System:
    """One small system. `source` has a list per partition of (event, which bytes); `faults` the number of each."""

    outside: bool  # the effect cannot be undone or looked up (a mail); else it has an inbox
    tiers: int
    workers: int
    slots: int
    hold: int
    source: list[list[tuple[str, int]]]
    scripts: dict[str, list[list[str]]]  # event -> per replay count -> run after run
    faults: dict[str, int] = field(default_factory=dict)
    replays: int = 0

    @property
    def topics(self) -> GroupTopics:
        """The names of the group's topics."""
        return GroupTopics(SOURCE, GROUP, tuple(range(1, self.tiers + 1)))

    @property
    def events(self) -> list[str]:
        """All events, in the order of their names."""
        return sorted(self.scripts)

    def outcome(self, event: str, replay_count: int, run: int) -> str:
        """What the handler does in its `run`-th run (from 1) since that replay."""
        of_replay = self.scripts[event]
        runs = of_replay[min(replay_count, len(of_replay) - 1)]
        return runs[min(run, len(runs)) - 1]

    def told(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """Read what `told` returned, also after a way through JSON."""
        source = [[(event, which) for event, which in partition] for partition in told["source"]]
        return cls(**{**told, "source": source})


def any_system(chance: random.Random) -> System:
    """Draw one. Most are small and have few kinds of faults: what goes wrong then goes wrong soon."""
    small = chance.random() < 0.6
    source: list[list[tuple[str, int]]] = []
    scripts: dict[str, list[list[str]]] = {}
    for _ in range(1 if small else chance.choice([1, 1, 2])):
        partition: list[tuple[str, int]] = []
        for _ in range(chance.randint(1, 2 if small else 3)):
            event = "abcdef"[len(scripts)]
            scripts[event] = [list(chance.choice(SCRIPTS)), list(chance.choice(AFTER_A_REPLAY))]
            partition.append((event, 1))
            if chance.random() < 0.35:  # the relay sent it twice; or another event has its id
                partition.append((event, 2 if chance.random() < 0.2 else 1))
        if chance.random() < 0.3:
            chance.shuffle(partition)
        source.append(partition)
    kinds = chance.sample(sorted(FAULTS), chance.randint(1, 4 if small else 8))
    if chance.random() < 0.7:  # forgetting excuses most of what could go wrong
        kinds = [kind for kind in kinds if kind != "forget"]
    return System(
        outside=chance.random() < 0.5,
        tiers=chance.choice([1, 1, 2, 3]),
        workers=chance.choice([1, 2, 2] if small else [2, 2, 3]),
        slots=chance.choice([1, 2, 3]),
        hold=chance.choice([3, 6]),
        source=source,
        scripts=scripts,
        faults={kind: chance.choice([1, 2, 3, 6]) for kind in kinds},
        replays=chance.choice([0, 0, 1, 2, 4]),
    )
