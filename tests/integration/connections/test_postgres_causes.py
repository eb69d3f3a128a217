"""Each reason why PostgreSQL does not let us in is a sentence of its own."""

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import DatabaseSettings
from orderflow.ops.stack.stack import LocalStack


def refusal(dsn: str, owner: str | None = None) -> str:
    with pytest.raises(Misconfigured) as raised:
        database.connect(DatabaseSettings.model_validate({"dsn": dsn}), owner)
    told = str(raised.value)
    assert "\n" not in told
    assert "hunter2" not in told
    return told


@pytest.fixture
def one_guest(stack: LocalStack, database: str) -> Iterator[str]:
    """The DSN of a user who may have one connection and no role of ours."""
    name = f"guest_{secrets.token_hex(4)}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        created = "CREATE ROLE {} LOGIN PASSWORD 'hunter2' CONNECTION LIMIT 1"
        connection.execute(sql.SQL(created).format(sql.Identifier(name)))
        yield psycopg.conninfo.make_conninfo(database, user=name, password="hunter2")
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_wrong_password_and_none(stack: LocalStack) -> None:
    wrong = psycopg.conninfo.make_conninfo(stack.postgres.dsn, password="hunter2")
    assert "refuses the password of user orderflow" in refusal(wrong)
    none = f"postgresql://orderflow@127.0.0.1:{stack.postgres.port}/orderflow"
    assert "wants a password and got none" in refusal(none)


def test_a_database_that_is_not_there(stack: LocalStack) -> None:
    told = refusal(stack.postgres.dsn_of("nowhere"))
    assert "has no database nowhere: create it (`createdb nowhere`)" in told


def test_our_role_that_is_not_there_or_not_ours(
    stack: LocalStack, one_guest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database.ROLES, "api", "orderflow_nobody")
    assert "the role orderflow_nobody is not there: run `orderflow db apply`" in refusal(stack.postgres.dsn, "api")
    monkeypatch.setitem(database.ROLES, "api", "orderflow")
    assert "not as the role orderflow: `GRANT orderflow TO`" in refusal(one_guest, "api")


def test_a_closed_port_and_an_unknown_name() -> None:
    assert "connection refused" in refusal("postgresql://127.0.0.1:1/orderflow")
    assert "no machine has this name" in refusal("postgresql://no-such-host.invalid/orderflow")


def test_no_connection_left(one_guest: str) -> None:
    with psycopg.connect(one_guest):
        assert "has no connection left for us" in refusal(one_guest)


def test_tls_where_there_is_none(stack: LocalStack) -> None:
    told = refusal(psycopg.conninfo.make_conninfo(stack.postgres.dsn, sslmode="require"))
    assert "does not speak TLS" in told


def test_what_is_no_connection_string_is_said_without_showing_it() -> None:
    assert "ORDERFLOW_DATABASE__DSN is no connection string" in refusal("hunter2 is my password")
