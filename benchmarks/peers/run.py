"""How fast peers consume, beside us: the same log, the same machine, in order, commits after the work.

    python benchmarks/peers/run.py [--only A,B,…] [--peers quixstreams,…] [--rounds 2] [--json FILE] [--short]

Each peer runs in an environment of its own, made from `requirements-PEER.txt` and kept in the folder of
downloads. Workloads and figures are those of `benchmarks/consume.py`. C and D with one record at a time
read fewer records: 5 ms each allow 200 a second.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.consuming.report import WIDTH
from benchmarks.consuming.rig import Figures, Rig
from benchmarks.consuming.task import Task
from benchmarks.consuming.workloads import IN_FLIGHT, ORDERS, PLAIN, Source
from benchmarks.peers import environments
from orderflow.core import log

PEERS = ("quixstreams", "arroyo", "faststream", "pyrallel")
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Race:
    """One table. `alone` has one record at a time and reads `few`; peers that cannot do it are left out."""

    letter: str
    title: str
    source: Source
    records: int
    short: int
    options: Mapping[str, Any]
    peers: Sequence[str] = PEERS
    few: int | None = None
    ours: Sequence[Mapping[str, Any]] = ({},)
    settings: Mapping[str, Any] = field(default_factory=dict)


_WAIT = {"work": "wait", "in_flight": IN_FLIGHT}
_SLOTS = {"WORKER__SLOTS": IN_FLIGHT}
_STYLES = ({"style": "async"}, {"style": "plain"})
RACES = (
    Race("A1", "values of 200 bytes, nothing to do, a record a call", PLAIN, 200_000, 5_000, {}),
    Race(
        "AB",
        "values of 200 bytes, nothing to do, a batch a call",
        PLAIN,
        200_000,
        5_000,
        {"style": "batch"},
        ("quixstreams", "arroyo", "faststream"),
    ),
    Race("B", "orders, decoded and validated, nothing to do", ORDERS, 100_000, 3_000, {"decoded": True}),
    Race(
        "C",
        "5 ms of input and output a record, 1,000 keys in order",
        ORDERS,
        50_000,
        2_000,
        _WAIT,
        few=2_000,
        ours=_STYLES,
        settings=_SLOTS,
    ),
    Race(
        "D",
        "the same, claimed in Redis before and told done after",
        ORDERS,
        50_000,
        2_000,
        {**_WAIT, "claims": True},
        few=2_000,
        ours=_STYLES,
        settings=_SLOTS,
    ),
)
_CONCURRENT = ("pyrallel",)


def main() -> None:
    """Run what is asked for, and print a table each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", type=lambda text: text.upper().split(","), help="A1, AB, B, C, D")
    arguments.add_argument("--peers", type=lambda text: text.split(","), default=PEERS)
    arguments.add_argument("--rounds", type=int)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments.add_argument("--short", action="store_true", help="shows that everything runs, and no more")
    chosen = arguments.parse_args()
    log.configure("error", "console")
    pythons = {peer: environments.python_of(peer) for peer in chosen.peers}
    result = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Rig(Path(folder)) as rig:
        for race in RACES:
            if chosen.only is None or race.letter in chosen.only:
                rounds = chosen.rounds or (1 if chosen.short else 2)
                result[race.letter] = run(rig, race, pythons, rounds, short=chosen.short)
                show(race, result[race.letter])
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")


def run(rig: Rig, race: Race, pythons: Mapping[str, str], rounds: int, *, short: bool) -> dict[str, dict[str, float]]:
    """Let us and the peers read the race's log, round after round; return the medians."""
    many = race.short if short else race.records
    few = min(many, 100 if short else race.few or many)
    topics = {}
    for records in {many, few if race.few else many}:
        topics[records] = f"peers-{race.letter.lower()}-{records}"
        rig.fill(topics[records], race.source.partitions, race.source.records(records))
    found: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for style in race.ours:
            task = Task("ours", topics[many], many, **{**race.options, **style})
            name = "ours" if len(race.ours) == 1 else f"ours, {'async def' if style['style'] == 'async' else 'def'}"
            note(found, name, many, rig.run(task, settings=race.settings))
        for peer in race.peers:
            if peer not in pythons:
                continue
            records = few if race.few and peer not in _CONCURRENT else many
            task = Task(peer, topics[records], records, **race.options)
            command = (pythons[peer], str(_HERE / f"{peer}_runner.py"))
            note(found, peer, records, rig.run(task, command=command))
    return {
        name: {what: median(one[what] for one in every) for what in ("records", "rate", "cpu", "peak_mb")}
        for name, every in found.items()
    }


def note(found: dict[str, list[Figures]], name: str, records: int, figures: Figures) -> None:
    """Keep one run's figures."""
    found.setdefault(name, []).append({**figures, "records": records})


def show(race: Race, found: Mapping[str, Mapping[str, float]]) -> None:
    """Print one race; the last columns say how many times our rate and our CPU time theirs are."""
    table = Table("", "records", "records/s", "CPU s/100,000", "peak MB", "rate, of ours", "CPU, of ours")
    ours = next((figures for name, figures in found.items() if name.startswith("ours")), None)
    for name, one in found.items():
        beside = [one["rate"] / ours["rate"], one["cpu"] / ours["cpu"]] if ours and one is not ours else []
        table.add_row(
            name,
            *(f"{one[what]:,.0f}" for what in ("records", "rate")),
            f"{one['cpu']:.2f}",
            f"{one['peak_mb']:.0f}",
            *(f"{ratio:.2f}" for ratio in beside),
        )
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(f"\n{race.letter}: {race.title}", markup=False)
    console.print(table)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
