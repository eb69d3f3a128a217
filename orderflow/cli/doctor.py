"""`orderflow doctor`: one look at everything."""

from typing import TYPE_CHECKING

import typer

from orderflow.cli.output import Json, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orderflow.ops.doctor.run import Line

_MARKS = {"ok": "✓", "skipped": "-", "warning": "!", "unknown": "?", "failed": "✗"}


def doctor(*, as_json: Json = False) -> None:
    """Look at everything this shop needs; exit 78 if something is wrong, 3 if it could not be told."""
    from orderflow.core import log, settings
    from orderflow.core.errors import Misconfigured, PartialOrUnknown
    from orderflow.ops.doctor.finding import State, failed
    from orderflow.ops.doctor.run import Line, examine, verdict

    # Its own lines say what the clients would log.
    log.configure("error")
    try:
        lines = examine(settings.load())
    except Misconfigured as wrong:
        lines = [Line("settings", failed(f"{wrong}; nothing else was looked at"))]
    worst = verdict(lines)
    if as_json:
        rows = [
            {"check": x.check, "state": x.finding.state, "what": x.finding.what, "mend": x.finding.mend} for x in lines
        ]
        print_json({"verdict": worst, "checks": rows})
    else:
        show(lines)
    if worst is State.FAILED:
        raise typer.Exit(Misconfigured.exit_code)
    if worst is State.UNKNOWN:
        raise typer.Exit(PartialOrUnknown.exit_code)


def show(lines: "Sequence[Line]") -> None:
    """Print a line for each finding, what mends it unless it was said before, and a last sentence."""
    from orderflow.ops.doctor.run import summary

    width = max(len(x.check) for x in lines)
    before = ""
    told: set[str] = set()
    for x in lines:
        name = "" if x.check == before else x.check
        before = x.check
        typer.echo(f"{_MARKS[x.finding.state]} {name:{width}}  {x.finding.what}")
        if x.finding.mend and x.finding.mend not in told:
            told.add(x.finding.mend)
            typer.echo(f"  {'':{width}}  → {x.finding.mend}")
    typer.echo(f"\n{summary(lines)}")
