"""`keys`, `customers` and `outbox` on the command line."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from psycopg import Connection
from psycopg_pool import ConnectionPool
from typer.testing import CliRunner, Result

from orderflow.cli import app
from orderflow.core.errors import NothingMatched
from orderflow.core.settings import Settings

Pool = ConnectionPool[Connection]
ORDER: dict[str, Any] = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


@pytest.fixture(autouse=True)
def environment(shop_tables: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDERFLOW_DATABASE__DSN", shop_tables.database.dsn.get_secret_value())


def orderflow(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def said(*arguments: str) -> Any:
    result = orderflow(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_key_is_shown_once_works_is_listed_without_its_secret_and_is_revoked(
    http: TestClient, shop_pool: Pool
) -> None:
    key = said("keys", "new", "marketplace")["key"]
    _, key_id, secret = key.split("_", 2)
    headers = {"Authorization": f"Bearer {key}"}
    assert http.post("/v1/orders", json=ORDER, headers=headers).status_code == 201
    listed = orderflow("keys", "ls").output + orderflow("keys", "ls", "--json").output
    assert key_id in listed
    assert secret not in listed
    with shop_pool.connection() as connection:
        stored = connection.execute("SELECT string_agg(k::text, ' ') FROM api.keys k").fetchone()
    assert secret not in str(stored)
    assert orderflow("keys", "revoke", key_id).exit_code == 0
    assert isinstance(orderflow("keys", "revoke", key_id).exception, NothingMatched)
    assert orderflow("keys", "new", "Not A Name").exit_code == 2


def test_customers_are_loaded_all_or_none(shop_pool: Pool, tmp_path: Path) -> None:
    entries = [
        {"customer_id": str(uuid4()), "name": f"Ada {number}", "email": "ada@shop.example", "locale": "en"}
        for number in range(3)
    ]
    file = tmp_path / "customers.json"
    file.write_text(json.dumps([*entries, {"customer_id": "7"}]))
    assert orderflow("customers", "load", str(file)).exit_code != 0
    with shop_pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM api.customers").fetchone() == (0,)
    file.write_text(json.dumps(entries))
    for _ in range(2):
        assert orderflow("customers", "load", str(file)).exit_code == 0
    with shop_pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM api.customers").fetchone() == (3,)


def test_the_outbox_is_listed_and_quarantined_rows_are_given_back(http: TestClient, shop_pool: Pool) -> None:
    for _ in range(3):
        http.post("/v1/orders", json=ORDER)
    rows = said("outbox", "ls")
    assert len(rows) == 3
    assert isinstance(orderflow("outbox", "requeue", "--all").exception, NothingMatched)
    with shop_pool.connection() as connection:
        connection.execute("UPDATE api.outbox SET quarantined_at = now(), last_error = 'too large' WHERE id < 3")
    assert [row["last_error"] for row in said("outbox", "ls", "--quarantined")] == ["too large"] * 2
    assert "quarantined" in orderflow("outbox", "ls").output
    event_id = said("outbox", "ls", "--quarantined")[0]["event_id"]
    assert said("outbox", "requeue", event_id) == {"requeued": [event_id]}
    assert len(said("outbox", "requeue", "--all")["requeued"]) == 1
    assert said("outbox", "ls", "--quarantined") == []
    assert orderflow("outbox", "requeue").exit_code == 2
    assert orderflow("outbox", "requeue", event_id, "--all").exit_code == 2
