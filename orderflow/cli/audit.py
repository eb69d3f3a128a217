"""`orderflow audit`: prove that every event has its row."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consumers.audit.verify import Finding, Report
    from orderflow.core.settings import Settings

app = typer.Typer(name="audit", help="One row per event, and the proof of it.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _several() -> None:
    """Keep `verify` a command of its own, although it is the only one."""


@app.command()
def verify(*, as_json: Json = False) -> None:
    """Re-read the source topic from offset zero and compare it with the audit rows.

    Exit 0: they agree. Exit 1: they do not; the ids are named. Exit 3: not all of the topic could be read.
    """
    from dataclasses import asdict

    from orderflow.core import settings
    from orderflow.core.errors import PartialOrUnknown

    report = _with_progress(settings.load())
    if as_json:
        typer.echo(json.dumps({**asdict(report), "agree": not (report.wrong or report.unread)}, indent=2))
    else:
        _tell(report)
    if report.wrong:
        raise typer.Exit(1)
    if report.unread:
        raise PartialOrUnknown(
            f"{report.unread:,} offsets could not be read: the topic's beginning was deleted, or a transaction is "
            f"still open; what was read agrees"
        )


def _with_progress(settings: "Settings") -> "Report":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from consumers.audit import verify as audit

    console = Console(stderr=True)
    columns = (TextColumn("reading the source"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        return audit.verify(settings, lambda passed, total: bar.update(task, completed=passed, total=total))


def _tell(report: "Report") -> None:
    typer.echo(
        f"{report.records:,} records: {report.events:,} events, {report.repeated:,} repeated, "
        f"{report.foreign:,} foreign; {report.rows:,} rows"
    )
    _name(report.missing, "events without a row (on their way, or dead: see the group's lag and its dead letters)")
    _name(report.different, "rows with the hash of other bytes")
    _name(report.without_record, "rows without a record")
    if not report.wrong and not report.unread:
        typer.echo("every event has its row, and every row its event")


def _name(finding: "Finding", what: str) -> None:
    if finding.count:
        typer.echo(f"{finding.count:,} {what}:")
        for event_id in finding.event_ids:
            typer.echo(f"  {event_id}")
        if finding.count > len(finding.event_ids):
            typer.echo(f"  … and {finding.count - len(finding.event_ids):,} more")
