"""Tables: numbered plain-SQL migrations, one folder per owner, applied in one order by one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import yoyo
from psycopg import Connection, Error, conninfo
from psycopg.rows import TupleRow
from yoyo.migrations import MigrationList

import consumers
import producers
from orderflow.core import database
from orderflow.core.errors import OrderflowError
from orderflow.core.settings import Settings
from orderflow.ops.provision.problem import Problem

# Any number that nothing else takes a lock on; this one spells "orderflow" on a phone's keys.
_LOCK = 673_373_569
_TABLE = yoyo.default_migration_table


def apply(settings: Settings) -> list[str]:
    """Apply what is missing and return its names; the second run, and one beside another, change nothing.

    A migration and the note that it was applied are one transaction. Raises `Misconfigured` when the
    database cannot be reached, `OrderflowError` when a migration fails: it is rolled back, those before it stay.
    """
    applied: list[str] = []
    with _alone(settings), yoyo.get_backend(_uri(settings)) as backend:
        # We are alone, so a lock row can only be of a process that died.
        backend.break_lock()
        for migration in backend.to_apply(_migrations()):
            try:
                with backend.transaction():
                    migration.process_steps(backend, "apply")
                    backend.mark_one(migration, log=False)
            except Error as error:
                raise OrderflowError(f"migration {migration.id} failed ({migration.path}): {error}") from error
            applied.append(migration.id)
    return applied


def check(settings: Settings) -> list[Problem]:
    """Return the migrations that are not applied, and applied ones that this version does not know.

    Changes nothing. Raises `Misconfigured` when the database cannot be reached.
    """
    known = [migration.id for migration in _migrations()]
    with database.connect(settings.database) as connection:
        applied = _applied(connection)
    return [
        *(Problem(name, "is not applied", "`orderflow db apply`") for name in known if name not in applied),
        *(
            Problem(name, "was applied by a newer version of orderflow", "run that version", "warning")
            for name in sorted(applied - set(known))
        ),
    ]


def _migrations() -> MigrationList:
    homes = [Path(producers.__path__[0]), *sorted(Path(consumers.__path__[0]).iterdir())]
    return yoyo.read_migrations(*(str(home / "migrations") for home in homes if (home / "migrations").is_dir()))


def _applied(connection: Connection[TupleRow]) -> set[str]:
    there = connection.execute("SELECT to_regclass(%s)", (f'"{_TABLE}"',)).fetchone()
    if there is None or there[0] is None:
        return set()
    return {str(row[0]) for row in connection.execute(f'SELECT migration_id FROM "{_TABLE}"')}  # noqa: S608 - a constant


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold a lock that ends with our connection, whatever becomes of this process."""
    with database.connect(settings.database, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        yield


def _uri(settings: Settings) -> str:
    """Return yoyo's form of the connection string; parameters in the query reach psycopg unchanged."""
    return "postgresql+psycopg:///?" + urlencode(conninfo.conninfo_to_dict(database.dsn(settings.database)))
