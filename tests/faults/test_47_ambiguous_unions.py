"""Only ["null", X] may be locked: a writer picks the branch of any other union by guessing."""

import copy
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from typer.testing import CliRunner

from orderflow.cli.schemas import app
from schemas.catalog import ROOT, Catalog
from schemas.lint import lint


def _with(kind: Any) -> dict[str, Any]:
    document = copy.deepcopy(Catalog.load().newest("shop.orders.OrderCancelled").document)
    document["fields"].append({"name": "extra", "type": kind})
    return document


def test_a_writer_really_picks_the_wrong_branch() -> None:
    """The reason for the rule, with our library: a record that fits two branches comes back as the other one."""
    paid = {"type": "record", "name": "Paid", "fields": [{"name": "amount", "type": "int", "default": 0}]}
    voucher = {"type": "record", "name": "Voucher", "fields": [{"name": "amount", "type": "int"}]}
    schema = fastavro.parse_schema([paid, voucher], named_schemas={})
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, {"amount": 5}, strict=True)
    assert buffer.getvalue()[0] == 0, "written as Paid, whatever was meant"


@pytest.mark.parametrize(
    "union",
    [
        ["string", "bytes"],
        ["int", "long"],
        ["null", "int", "long"],
        ["null", "float", "double"],
        ["int", "null"],
        ["null"],
        [],
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["field", "list", "map"])
def test_any_other_union_is_refused_wherever_it_stands(union: Any, place: str) -> None:
    kind = {"field": union, "list": {"type": "array", "items": union}, "map": {"type": "map", "values": union}}[place]
    assert "union" in [problem.rule for problem in lint(_with(kind))]


@pytest.mark.parametrize("kind", ["int", "string", {"type": "array", "items": "long"}], ids=str)
def test_an_optional_value_is_allowed(kind: Any) -> None:
    assert lint(_with(["null", kind])) == []


def test_the_command_refuses_to_lock_one(tmp_path: Path) -> None:
    file = tmp_path / "new.avsc"
    file.write_text(json.dumps(_with(["null", "int", "string"])))
    before = (ROOT / "registry.json").read_bytes()
    result = CliRunner().invoke(app, ["add", str(file)])
    assert result.exit_code == 1
    assert 'the only union allowed is ["null", X]' in result.output
    assert (ROOT / "registry.json").read_bytes() == before
