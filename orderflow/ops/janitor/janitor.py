"""One run over all tables of ours that grow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import errors

from consumers.inventory import sweeps as inventory
from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.core.sweep import Sweep
from orderflow.ops.janitor import sweeping
from producers import sweeps as api

Progress = Callable[[str, int, int], None]
"""Told of a table, the rows deleted so far, and how many there are to delete."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of one table: rows older than `before`, and how many of them were deleted."""

    table: str
    before: datetime
    old: int
    deleted: int


def sweeps(settings: Settings) -> Sequence[Sweep]:
    """Return what may be deleted, table by table."""
    return (*api.sweeps(settings), *inventory.sweeps(settings))


def tidy(settings: Settings, *, dry_run: bool = False, progress: Progress = lambda *_: None) -> list[Swept]:
    """Delete what nobody needs any more; with `dry_run` only count it.

    May run beside everything, other runs included, and be stopped at any time. Raises `Misconfigured` when the
    database or its tables are not there.
    """
    try:
        return [_one(settings, sweep, dry_run=dry_run, progress=progress) for sweep in sweeps(settings)]
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.InsufficientPrivilege) as error:
        message = f"the database is not set up for the janitor ({error.diag.message_primary}): run `orderflow db apply`"
        raise Misconfigured(message) from None


def _one(settings: Settings, sweep: Sweep, *, dry_run: bool, progress: Progress) -> Swept:
    with database.connect(settings.database, "janitor", autocommit=True) as connection:
        before = sweeping.cutoff(connection, sweep)
        old = sweeping.count(connection, sweep, before)
        deleted = 0
        progress(sweep.table, 0, old)
        if not dry_run:
            for rows in sweeping.batches(connection, sweep, before, settings.janitor.batch_rows):
                deleted += rows
                progress(sweep.table, deleted, old)
        return Swept(sweep.table, before, old, deleted)
