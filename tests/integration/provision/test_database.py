"""Migrations on a real PostgreSQL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import yoyo

from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import database


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces the product's migrations by files with these texts."""

    def replace(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
        monkeypatch.setattr(database, "_migrations", lambda: yoyo.read_migrations(str(tmp_path)))

    return replace


def one(settings: Settings, query: str) -> object:
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_apply_makes_each_owners_schema_once_and_check_agrees(settings: Settings) -> None:
    before = database.check(settings)

    applied = database.apply(settings)

    assert [problem.where for problem in before] == sorted(applied, key=[p.where for p in before].index)
    assert {name.split("-")[0] for name in applied} == {"api", "email", "inventory", "audit"}
    assert database.check(settings) == []
    assert database.apply(settings) == []
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('api', 'email', 'inventory', 'audit')"
    assert one(settings, schemas) == 4


def test_check_changes_nothing(settings: Settings) -> None:
    assert database.check(settings)

    assert one(settings, "SELECT count(*) FROM pg_tables WHERE tablename LIKE '%yoyo%'") == 0


def test_runs_side_by_side_apply_each_migration_once(settings: Settings) -> None:
    with ThreadPoolExecutor(4) as runs:
        done = list(runs.map(lambda _: database.apply(settings), range(4)))

    applied = [name for names in done for name in names]
    assert applied
    assert len(applied) == len(set(applied))
    assert database.check(settings) == []


def test_a_migration_that_fails_leaves_nothing_of_itself_and_those_before_it_stay(
    settings: Settings, migrations: Callable[..., None]
) -> None:
    migrations(a="CREATE TABLE first (id int);", b="CREATE TABLE second (id int); INSERT INTO nowhere VALUES (1);")

    with pytest.raises(OrderflowError, match=r"migration b failed .*nowhere"):
        database.apply(settings)

    assert one(settings, "SELECT to_regclass('first') IS NOT NULL AND to_regclass('second') IS NULL") is True
    assert [problem.where for problem in database.check(settings)] == ["b"]


def test_a_note_that_fails_takes_its_migration_with_it(
    settings: Settings, migrations: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations(a="CREATE TABLE first (id int);")
    mark = "yoyo.backends.base.DatabaseBackend.mark_one"

    with monkeypatch.context() as patched:

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(mark, die)
        with pytest.raises(KeyboardInterrupt):
            database.apply(settings)

    assert database.apply(settings) == ["a"]


def test_the_lock_of_a_process_that_died_stops_nobody(settings: Settings, migrations: Callable[..., None]) -> None:
    migrations(a="CREATE TABLE first (id int);")
    database.apply(settings)
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        connection.execute("INSERT INTO yoyo_lock (locked, ctime, pid) VALUES (1, now(), 1)")
    migrations(b="CREATE TABLE second (id int);")

    assert database.apply(settings) == ["b"]


def test_a_block_with_semicolons_and_percent_signs_is_one_statement(
    settings: Settings, migrations: Callable[..., None]
) -> None:
    migrations(a="DO $$ BEGIN CREATE TABLE first (name text); INSERT INTO first VALUES ('100 % sure'); END $$;")

    database.apply(settings)

    assert one(settings, "SELECT name FROM first") == "100 % sure"


def test_a_migration_of_a_newer_version_is_a_warning(settings: Settings) -> None:
    database.apply(settings)
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        connection.execute(
            "INSERT INTO _yoyo_migration (migration_hash, migration_id, applied_at_utc) VALUES ('x', 'api-9999', now())"
        )

    (problem,) = database.check(settings)

    assert (problem.where, problem.severity) == ("api-9999", "warning")


def test_an_unreachable_database_is_one_sentence_without_the_password() -> None:
    nowhere = load({"ORDERFLOW_DATABASE__DSN": "postgresql://someone:hunter2@127.0.0.1:1/nothing"})

    for run in (database.apply, database.check):
        with pytest.raises(Misconfigured, match=r"127\.0\.0\.1:1/nothing.*ORDERFLOW_DATABASE__DSN") as raised:
            run(nowhere)
        assert "hunter2" not in str(raised.value)
        assert "\n" not in str(raised.value)
