"""`orderflow stock`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orderflow.cli import app
from orderflow.core.errors import Misconfigured, OrderflowError, Refused
from orderflow.core.settings import Settings


def test_without_tables_the_command_that_makes_them_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Roles belong to the server; here it has none of ours, or has them without a schema in this database.
    environ = {"ORDERFLOW_DATABASE__DSN": settings.database.dsn.get_secret_value()}

    result = CliRunner().invoke(app, ["stock", "ls"], env=environ)

    assert isinstance(result.exception, Misconfigured)
    assert "orderflow provision" in str(result.exception)


def test_stock_is_loaded_listed_and_refused(
    provisioned: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def stock(*arguments: str) -> Result:
        environ = {"ORDERFLOW_DATABASE__DSN": provisioned.database.dsn.get_secret_value()}
        return CliRunner().invoke(app, ["stock", *arguments], env=environ)

    assert "orderflow stock load FILE" in stock("ls").stdout
    (tmp_path / "stock.csv").write_text("sku,on_hand\nTEA-100,40\nCUP-1,7\n")
    loaded = stock("load", "stock.csv")
    assert (loaded.exit_code, loaded.stdout) == (0, "2 articles, 47 pieces on hand\n")

    listed = stock("ls", "--json")
    assert listed.exit_code == 0
    assert json.loads(listed.stdout) == [
        {"sku": "CUP-1", "on_hand": 7, "reserved": 0, "available": 7},
        {"sku": "TEA-100", "on_hand": 40, "reserved": 0, "available": 40},
    ]
    assert "TEA-100" in stock("ls").stdout

    (tmp_path / "wrong.csv").write_text("sku,on_hand\nTEA-100,-1\n")
    refused = stock("load", "wrong.csv")
    assert isinstance(refused.exception, OrderflowError)
    assert not isinstance(refused.exception, Refused)
    assert "entry 1: on_hand" in str(refused.exception)
