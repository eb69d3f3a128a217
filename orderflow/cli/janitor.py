"""`orderflow janitor`: own tables do not grow for ever."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orderflow.ops.janitor.janitor import Progress


def janitor(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Delete published outbox rows, Idempotency-Keys and inbox entries that are old; one run, safe at any time.

    How long they are kept: ORDERFLOW_JANITOR__OUTBOX_DAYS, __INBOX_DAYS, ORDERFLOW_API__IDEMPOTENCY_HOURS.
    """
    from dataclasses import asdict

    from orderflow.core import settings
    from orderflow.ops.janitor.janitor import tidy

    with _bars() as progress:
        swept = tidy(settings.load(), dry_run=dry_run, progress=progress)
    if as_json:
        print_json({"dry_run": dry_run, "tables": [asdict(one) for one in swept]})
        return
    print_table(
        ("table", "older than", "old rows", "would go" if dry_run else "deleted"),
        [(x.table, f"{x.before:%Y-%m-%d %H:%M %Z}", x.old, x.old if dry_run else x.deleted) for x in swept],
    )


@contextmanager
def _bars() -> "Iterator[Progress]":
    """Show a bar for each table on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def show(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, total=total)
            bars.update(tasks[table], completed=done, total=max(total, done))

        yield show
