"""Tables for people, and one file for machines."""

import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.consuming.rig import Figures
from benchmarks.consuming.workloads import Workload, ideal_seconds

Rounds = Mapping[str, Sequence[Figures]]
Row = dict[str, Any]
WIDTH = 120
"""Of what is printed where no terminal is."""


def rows(workload: Workload, records: int, found: Rounds) -> list[Row]:
    """Return the medians of the rounds, and the medians of the ratios within each round."""
    summary = []
    for contender in workload.rows:
        rounds = found[contender.name]
        row: Row = {"name": contender.name}
        row |= {name: round(median(one[name] for one in rounds), 3) for name in ("rate", "cpu", "peak_mb")}
        if workload.letter.startswith("P"):
            row["of_ideal"] = round(
                median(one["seconds"] for one in rounds) / ideal_seconds(records, int(workload.letter[1:])), 2
            )
        if contender.beside is not None:
            row["beside"] = contender.beside
            for what in ("rate", "cpu"):
                pairs = zip(rounds, found[contender.beside], strict=True)
                row[f"of_{what}"] = round(median(one[what] / yardstick[what] for one, yardstick in pairs), 3)
        summary.append(row)
    return summary


def show(workload: Workload, records: int, summary: Sequence[Row]) -> None:
    """Print one workload's table, and where we lose."""
    table = Table(*("", "records/s", "CPU s/100,000", "peak MB", "rate ratio", "CPU ratio", "of ideal"))
    for row in summary:
        table.add_row(
            row["name"],
            f"{row['rate']:,.0f}",
            f"{row['cpu']:.2f}",
            f"{row['peak_mb']:.0f}",
            *(f"{row[name]:.2f}" if name in row else "" for name in ("of_rate", "of_cpu", "of_ideal")),
        )
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(f"\n{workload.letter}: {workload.title}; {records:,} records", markup=False)
    console.print(table)
    for row in summary:
        if row.get("of_rate", 1.0) < 1 or row.get("of_cpu", 1.0) > 1:
            console.print(
                f"  {row['name']}: {row['of_rate']:.2f} of the rate and {row['of_cpu']:.2f} of the CPU time of "
                f"“{row['beside']}”" + (": we lose" if row["of_rate"] < 1 else ": as quick, but dearer"),
                markup=False,
                soft_wrap=True,
            )
    sys.stdout.flush()
