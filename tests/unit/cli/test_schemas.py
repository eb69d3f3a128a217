import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orderflow.cli.schemas import app
from orderflow.core.errors import Misconfigured, NothingMatched, Refused
from schemas.catalog import ROOT, Catalog

CREATED = "shop.orders.OrderCreated"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packaged schemas that the commands work on."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    shutil.copy(ROOT / "registry.json", folder)
    shutil.copytree(ROOT / "avro", folder / "avro")
    monkeypatch.setattr(Catalog, "load", lambda: Catalog.read(folder))
    return folder


def _run(*arguments: str | Path, fails_with: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == fails_with, result.output
    return result.output


def _newer(root: Path, place: str = "new.avsc", **field: Any) -> Path:
    document = copy.deepcopy(Catalog.read(root).newest(CREATED).document)
    document["fields"].append({"name": "extra", "type": "boolean", "default": False, **field})
    file = root.parent / place
    file.write_text(json.dumps(document))
    return file


def test_check_is_silent_about_a_clean_lock(root: Path) -> None:
    count = len(Catalog.read(root).entries)
    assert f"{count} schemas of " in _run("check")
    assert json.loads(_run("check", "--json")) == {"schemas": count, "problems": []}


def test_check_lists_the_problems_and_fails(root: Path) -> None:
    (root / "avro/stray.avsc").write_text("{}")
    assert "schemas/avro/stray.avsc: lock: the lock does not know this file" in _run("check", fails_with=1)
    (problem,) = json.loads(_run("check", "--json", fails_with=1))["problems"]
    assert (problem["where"], problem["rule"]) == ("schemas/avro/stray.avsc", "lock")
    assert "orderflow schemas add schemas/avro/stray.avsc" in problem["message"]


def test_check_refuses_a_schema_file_that_was_changed(root: Path) -> None:
    with (root / "avro/shop.orders.OrderPaid.v1.avsc").open("a") as file:
        file.write(" ")
    with pytest.raises(Misconfigured, match="not the file that was locked"):
        _run("check")


def test_add_locks_a_compatible_schema_and_says_what_comes_next(root: Path) -> None:
    before = Catalog.read(root)
    output = _run("add", _newer(root))
    version, schema_id = before.newest(CREATED).version + 1, before.entries[-1].id + 1
    assert f"{CREATED}@{version} is id {schema_id} now: schemas/avro/{CREATED}.v{version}.avsc" in output
    assert "schemas/events.py" in output
    assert "OrderCreated in schemas/events.py does not have this field" in _run("check", fails_with=1)


def test_add_takes_a_file_that_already_stands_in_its_place(root: Path) -> None:
    version = Catalog.read(root).newest(CREATED).version + 1
    file = _newer(root, f"schemas/avro/{CREATED}.v{version}.avsc")
    added = json.loads(_run("add", file, "--json"))["added"]
    assert (added["version"], added["file"]) == (version, f"avro/{file.name}")
    assert Catalog.read(root).newest(CREATED).id == added["id"]


def test_add_refuses_what_readers_would_not_survive_and_changes_nothing(root: Path) -> None:
    before = (root / "registry.json").read_bytes()
    file = _newer(root, type={"type": "long", "logicalType": "timestamp-micros"}, default=0)
    assert f"{CREATED}.extra: logical-default: " in _run("add", file, fails_with=1)
    report = json.loads(_run("add", file, "--json", fails_with=1))
    assert report["added"] is None
    assert [problem["rule"] for problem in report["problems"]] == ["logical-default"]
    assert (root / "registry.json").read_bytes() == before


def test_add_refuses_what_is_locked_already(root: Path) -> None:
    with pytest.raises(Refused, match="nothing to add"):
        _run("add", root / f"avro/{CREATED}.v1.avsc")


def test_add_says_which_file_it_cannot_read(root: Path) -> None:
    with pytest.raises(Exception, match=r"missing\.avsc: No such file"):
        _run("add", root / "missing.avsc")


def test_ls_lists_every_version(root: Path) -> None:
    rows = json.loads(_run("ls", "--json"))
    assert [(row["id"], row["version"]) for row in rows][:4] == [(100001, 1), (100002, 2), (100003, 1), (100004, 1)]
    assert len(rows) == len(Catalog.read(root).entries)
    table = _run("ls")
    assert all(row["subject"] in table and str(row["id"]) in table for row in rows)


@pytest.mark.parametrize(
    ("wanted", "schema_id"),
    [
        ("100001", 100001),
        (CREATED, None),
        ("OrderCreated", None),
        ("OrderCreated@1", 100001),
        (f"{CREATED}@2", 100002),
    ],
)
def test_show_finds_a_schema_by_id_name_or_version(root: Path, wanted: str, schema_id: int | None) -> None:
    shown = json.loads(_run("show", wanted, "--json"))
    catalog = Catalog.read(root)
    entry = catalog.newest(CREATED) if schema_id is None else catalog.by_id(schema_id)
    assert entry is not None
    assert (shown["id"], shown["schema"]) == (entry.id, entry.document)


def test_show_prints_fields_types_and_defaults(root: Path) -> None:
    output = _run("show", "OrderCreated@2")
    for text in ("100002", "decimal(18,4)", "timestamp-micros", "null or date", '"unknown"', "list of OrderLine(sku"):
        assert text in output
    assert root.is_dir()


@pytest.mark.parametrize("wanted", ["OrderLost", "OrderCreated@9", "7", "", "@1"])
def test_show_says_how_to_find_the_name(root: Path, wanted: str) -> None:
    with pytest.raises(NothingMatched, match="orderflow schemas ls"):
        _run("show", wanted)
    assert root.is_dir()
