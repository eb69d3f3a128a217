"""How commands show what they read: JSON for programs, a table for people."""

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from orderflow.ops.provision.problem import Problem

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# Wider than any table; a table takes no more than it needs.
_UNLIMITED = 100_000


def print_json(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Collection[str] = ()) -> None:
    """Print a table; cells are plain text, never markup. Columns in `numbers` are aligned at the right.

    On a terminal long cells are folded, but none of the first column, by which people search; elsewhere none is.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(
            column,
            overflow="fold",
            no_wrap=number == 0,
            justify="right" if column in numbers else "left",
        )
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = _UNLIMITED
    console.print(table)


def print_problems(problems: "Sequence[Problem]", *, as_json: bool, nothing: str) -> None:
    """Print what a check found, or `nothing`; raise `typer.Exit` with 78 if any of it is an error."""
    from dataclasses import asdict

    if as_json:
        print_json([asdict(problem) for problem in problems])
    elif problems:
        print_table(
            ("", "where", "what", "mend"),
            [(problem.severity, problem.where, problem.what, problem.mend) for problem in problems],
        )
    else:
        typer.echo(nothing)
    if any(problem.severity == "error" for problem in problems):
        from orderflow.core.errors import Misconfigured

        raise typer.Exit(Misconfigured.exit_code)
