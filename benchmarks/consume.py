"""How fast a group consumes, beside loops written by hand on the client alone.

    python benchmarks/consume.py [--only A,B,…] [--records N] [--rounds 3] [--json FILE] [--short]

Each round reads the same log by each contender in turn, in a process of its own on one core; the broker and
Redis have the others. Reported: records/s from the first record handled to the last, CPU seconds of the
process per 100,000 records, its peak memory, and the ratios to the yardstick of the same round.
A: nothing to do. B: decoding. C: 5 ms of input and output. D: with claims. E: with failures. P: keys in order
against the ideal. L: how late retries are. R: rolling restart. M: memory. `README.md` says what each is.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.consuming import report, special
from benchmarks.consuming.rig import Figures, Rig
from benchmarks.consuming.workloads import WORKLOADS, Source, Workload
from orderflow.core import log

SHORT = ("A", "B", "C", "D", "E", "P100")
SHORT_PARTITIONS = 3
# In the file; a person reads three of the twenty samples.
UNTOLD = {"disorder", "seconds"} | {f"mb_{percent}" for percent in range(5, 100, 5) if percent not in (10, 50)}


def main() -> None:
    """Run what is asked for, and print a table each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", type=lambda text: text.upper().split(","), help="letters; P means all of P")
    arguments.add_argument("--records", type=int, help="of every workload, in place of its own number")
    arguments.add_argument("--rounds", type=int)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments.add_argument("--short", action="store_true", help="seconds: shows that everything runs, and no more")
    chosen = arguments.parse_args()
    log.configure("error", "console")
    kept = Kept(chosen.json)

    def wanted(letter: str) -> bool:
        return chosen.only is None or letter in chosen.only or letter[0] in chosen.only

    races = [workload for workload in WORKLOADS if wanted(workload.letter)]
    if chosen.short:
        races = [shortened(workload) for workload in races if workload.letter in SHORT]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if races or wanted("L") or wanted("M"):
            with Rig(Path(folder)) as rig:
                for workload in races:
                    records = chosen.records or (workload.short if chosen.short else workload.records)
                    found = race(rig, workload, records, chosen.rounds or (1 if chosen.short else 3))
                    summary = report.rows(workload, records, found)
                    report.show(workload, records, summary)
                    kept.add(workload.letter, {"title": workload.title, "records": records, "rows": summary})
                if wanted("L"):
                    records = chosen.records or (5_000 if chosen.short else 250_000)
                    late = special.lateness(rig, records, short=chosen.short)
                    kept.add("L", told("L: how late second attempts begin", late))
                if wanted("M"):
                    records = chosen.records or (5_000 if chosen.short else 1_000_000)
                    sizes = special.memory(rig, records, short=chosen.short)
                    kept.add("M", told("M: memory along the way", sizes))
        if wanted("R"):
            # The broker's own heartbeat interval makes most of a KIP-848 rebalance: not the quick one of tests.
            with Rig(Path(folder), quick_groups=chosen.short) as rig:
                rests = {name: special.restart(rig, name, short=chosen.short) for name in ("classic", "consumer")}
            kept.add("R", told("R: rolling restart, the longest rest of a partition", rests))


class Kept:
    """The results so far, in a file when one is named: what fails later takes nothing with it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._result: dict[str, Any] = {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        }

    def add(self, letter: str, found: object) -> None:
        """Keep one measure."""
        self._result[letter] = found
        if self._path:
            self._path.write_text(json.dumps(self._result, indent=2) + "\n")


def shortened(workload: Workload) -> Workload:
    """Return a workload with few partitions: most of a short run is making topics."""
    return replace(
        workload,
        source=few_partitions(workload.source),
        rows=[replace(row, source=row.source and few_partitions(row.source)) for row in workload.rows],
    )


def few_partitions(source: Source) -> Source:
    """Return a source with few partitions."""
    return replace(source, partitions=min(source.partitions, SHORT_PARTITIONS))


def race(rig: Rig, workload: Workload, records: int, rounds: int) -> dict[str, list[Figures]]:
    """Let every contender read the workload's log, round after round."""
    topics: dict[str, str] = {}
    for source in {contender.source or workload.source for contender in workload.rows}:
        topics[source.name] = f"bench-{workload.letter.lower()}-{source.name}"
        rig.fill(topics[source.name], source.partitions, source.records(records))
    found: dict[str, list[Figures]] = {contender.name: [] for contender in workload.rows}
    for _ in range(rounds):
        for contender in workload.rows:
            source = contender.source or workload.source
            task = contender.task(topics[source.name], source, records)
            found[contender.name].append(rig.run(task, committed=records, settings=contender.settings))
    return found


def told(title: str, found: dict[str, Figures]) -> dict[str, Figures]:
    """Print the figures of a measure that is no race; return them."""
    console = Console(width=None if sys.stdout.isatty() else report.WIDTH)
    console.print(f"\n{title}", markup=False)
    for name, figures in found.items():
        said = ", ".join(f"{what} {value:,.2f}" for what, value in figures.items() if what not in UNTOLD)
        console.print(f"  {name}: {said}", markup=False, soft_wrap=True)
    sys.stdout.flush()  # who reads a file of it wants to see how far it is
    return found


if __name__ == "__main__":
    main()
