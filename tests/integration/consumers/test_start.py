"""How the groups start, and what each one's role may touch."""

from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import errors

from consumers.audit.group import open_rows
from consumers.email.group import open_mail
from consumers.inventory.group import open_stock
from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings

TABLES = {
    "api.customers": "api",
    "api.orders": "api",
    "api.outbox": "api",
    "api.keys": "api",
    "email.deliveries": "email",
    "email.directory": "email",
    "inventory.stock": "inventory",
    "inventory.orders": "inventory",
    "inventory.reservations": "inventory",
    "inventory.inbox": "inventory",
    "audit.rows": "audit",
}
OPEN = {"email": open_mail, "inventory": open_stock, "audit": open_rows}


def opened(owner: str, settings: Settings) -> AbstractContextManager[Any]:
    return OPEN[owner](settings)


FORBIDDEN = [
    ("email", "INSERT INTO email.directory (customer_id) VALUES (gen_random_uuid())"),
    ("email", "UPDATE email.directory SET name = ''"),
    ("email", "DELETE FROM email.directory"),
    ("email", "DELETE FROM email.deliveries"),
    ("audit", "UPDATE audit.rows SET epoch = 1"),
    ("audit", "DELETE FROM audit.rows"),
    ("audit", "TRUNCATE audit.rows"),
    ("audit", "ALTER TABLE audit.rows DROP COLUMN topic"),
    ("inventory", "DELETE FROM inventory.stock"),
    ("inventory", "DELETE FROM inventory.inbox"),
    ("inventory", "CREATE TABLE inventory.mine ()"),
]


def test_a_group_without_its_tables_names_the_command(settings: Settings) -> None:
    for owner in OPEN:
        with psycopg.connect(settings.database.dsn.get_secret_value(), autocommit=True) as connection:
            connection.execute(
                f"DO $$ BEGIN CREATE ROLE orderflow_{owner} NOLOGIN;"
                f" EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
            )
        with pytest.raises(Misconfigured, match="orderflow db apply"), opened(owner, settings):
            pass


def test_a_group_without_a_database_names_the_command(settings: Settings) -> None:
    nowhere = settings.database.model_validate({"dsn": "postgresql://127.0.0.1:1/orderflow"})
    for owner in OPEN:
        with (
            pytest.raises(Misconfigured, match="orderflow stack up"),
            opened(owner, settings.model_copy(update={"database": nowhere})),
        ):
            pass


def test_each_group_opens_on_a_provisioned_database(provisioned: Settings) -> None:
    for owner in OPEN:
        with opened(owner, provisioned):
            pass


def test_each_role_reads_its_own_tables_and_no_others(provisioned: Settings) -> None:
    for owner in OPEN:
        with database.connect(provisioned.database, owner, autocommit=True) as connection:
            for table, its_owner in TABLES.items():
                query = f"SELECT * FROM {table} LIMIT 0"
                if its_owner == owner:
                    connection.execute(query)
                else:
                    with pytest.raises(errors.InsufficientPrivilege):
                        connection.execute(query)


def test_each_role_may_do_no_more_than_its_work(provisioned: Settings) -> None:
    for owner, statement in FORBIDDEN:
        with (
            database.connect(provisioned.database, owner, autocommit=True) as connection,
            pytest.raises(errors.InsufficientPrivilege),
        ):
            connection.execute(statement)
