"""The table of workloads: what is read, by whom, and beside which yardstick."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.consuming.rig import Record, drawn, orders, plain
from benchmarks.consuming.task import Task

POISON_EVERY = 1_000
IN_FLIGHT = 100


@dataclass(frozen=True, slots=True)
class Source:
    """A topic that is filled once."""

    name: str
    records: Callable[[int], Iterable[Record]]
    partitions: int = 12


@dataclass(frozen=True, slots=True)
class Contender:
    """One row: the fields of its task, our settings, and the row that it is measured against."""

    name: str
    contender: str
    beside: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None

    def task(self, topic: str, source: Source, records: int) -> Task:
        """Return its task over so many records."""
        poison = records // POISON_EVERY if source.name == FAULTY.name else 0
        return Task(self.contender, topic, records - poison, source.partitions, **self.options)


@dataclass(frozen=True, slots=True)
class Workload:
    """One table. `records` is the usual size, `short` that of a run which only shows that everything works."""

    letter: str
    title: str
    source: Source
    records: int
    short: int
    rows: Sequence[Contender]


PLAIN = Source("plain", plain)
ORDERS = Source("orders", orders)
FAULTY = Source("faulty", lambda records: orders(records, poison_every=POISON_EVERY))

_CLAIMS = {"claims": True}
_EVENTS = {"decoded": True}
_BATCH = {"style": "batch"}
_ASYNC, _PLAIN = ({"style": style, "work": "wait", "in_flight": IN_FLIGHT} for style in ("async", "plain"))
_SLOTS = {"WORKER__SLOTS": IN_FLIGHT}
# One partition holds all there is, as the loop by hand does.
_WIDE = {**_SLOTS, "WORKER__HELD_RECORDS": 10_000}

WORKLOADS = (
    Workload(
        "A",
        "values of 200 bytes, a handler that does nothing",
        PLAIN,
        1_000_000,
        20_000,
        (
            Contender("client, a record a call", "loop"),
            Contender("ours, a record a call", "ours", "client, a record a call"),
            Contender("client, a batch a call", "loop", None, _BATCH),
            Contender("ours, a batch a call", "ours", "client, a batch a call", _BATCH),
        ),
    ),
    Workload(
        "B",
        "orders, decoded and validated, a handler that does nothing",
        ORDERS,
        200_000,
        5_000,
        (
            Contender("client and decode", "loop", None, _EVENTS),
            Contender("ours", "ours", "client and decode", _EVENTS),
            Contender("ours, with claims", "ours", "client and decode", {**_EVENTS, **_CLAIMS}),
        ),
    ),
    Workload(
        "C",
        "5 ms of input and output a record, 1,000 keys in order, 100 in flight",
        ORDERS,
        100_000,
        3_000,
        (
            Contender("loop by hand", "keyed", None, _ASYNC),
            Contender("ours, async def", "ours", "loop by hand", _ASYNC, _SLOTS),
            Contender("ours, def", "ours", "loop by hand", _PLAIN, _SLOTS),
        ),
    ),
    Workload(
        "D",
        "the same with a claim for each record in Redis",
        ORDERS,
        100_000,
        3_000,
        (
            Contender("loop by hand, round trips", "keyed_round_trips", None, _ASYNC),
            Contender("loop by hand, pipelines", "keyed_pipelined", None, _ASYNC),
            Contender("ours, async def", "ours", "loop by hand, pipelines", {**_ASYNC, **_CLAIMS}, _SLOTS),
            Contender("ours, def", "ours", "loop by hand, pipelines", {**_PLAIN, **_CLAIMS}, _SLOTS),
        ),
    ),
    Workload(
        "E",
        "B with claims, where 1 % of the records fail once and 0.1 % cannot be decoded",
        FAULTY,
        200_000,
        5_000,
        (
            Contender("ours, nothing fails", "ours", None, {**_EVENTS, **_CLAIMS}, source=ORDERS),
            Contender("ours", "flaky", "ours, nothing fails", {**_EVENTS, **_CLAIMS}),
        ),
    ),
    *(
        Workload(
            f"P{keys}",
            f"0 to 5 ms a record, one partition, {keys:,} keys in order, 100 in flight",
            Source(f"drawn-{keys}", lambda records, keys=keys: drawn(records, keys), partitions=1),  # type: ignore[misc]
            10_000,
            500,
            (
                Contender("loop by hand", "keyed", None, {**_ASYNC, "work": "drawn"}),
                *(
                    Contender(
                        name,
                        "ours",
                        "loop by hand",
                        {**style, "work": "drawn"},
                        {**_SLOTS, "WORKER__HELD_RECORDS": 10_000},
                    )
                    for name, style in (("ours, async def", _ASYNC), ("ours, def", _PLAIN))
                ),
            ),
        )
        for keys in (1, 10, 100, 1_000, 10_000)
    ),
)


def ideal_seconds(records: int, keys: int) -> float:
    """Return the least time that P can take: the longest key's sum, or all of it spread over what is in flight."""
    sums: Counter[bytes | None] = Counter()
    for key, value, _ in drawn(records, keys):
        sums[key] += int(value or b"0")
    return max(*sums.values(), sums.total() / IN_FLIGHT) / 1e6
