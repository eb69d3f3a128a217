import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from schemas.catalog import ROOT, Catalog, SchemaEntry
from schemas.evolution import check, review
from schemas.lock import append, draft

CREATED = "shop.orders.OrderCreated"
Change = Callable[[dict[str, Any]], object]


def _entry(document: dict[str, Any], version: int) -> SchemaEntry:
    parsed: Any = fastavro.parse_schema(document, named_schemas={})
    return SchemaEntry(200_000 + version, parsed["name"], version, f"v{version}.avsc", "", document, parsed)


def _changed(change: Change, base: int = 100002) -> list[str]:
    """Return the rules that a next version of OrderCreated breaks, made from a locked one by `change`."""
    locked = Catalog.load().by_id(base)
    assert locked is not None
    document = copy.deepcopy(locked.document)
    change(document)
    entry = _entry(document, Catalog.load().newest(CREATED).version + 1)
    return [problem.rule for problem in review(Catalog((*Catalog.load().entries, entry)), entry)]


def _fields(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in document["fields"]}


def _line(document: dict[str, Any]) -> dict[str, Any]:
    items: dict[str, Any] = _fields(document)["lines"]["type"]["items"]
    return items


def _add(**field: Any) -> Change:
    return lambda document: document["fields"].append(field)


def _remove(name: str) -> Change:
    return lambda document: document["fields"].remove(_fields(document)[name])


def _retype(name: str, kind: Any) -> Change:
    return lambda document: _fields(document)[name].update(type=kind)


def test_the_packaged_lock_is_clean() -> None:
    assert check(Catalog.load()) == []


@pytest.mark.parametrize(
    "change",
    [
        _add(name="extra", type="boolean", default=False),
        _add(name="extra", type=["null", "long"], default=None),
        _add(name="extra", type={"type": "array", "items": "string"}, default=[]),
        _remove("channel"),
        _remove("delivery_date"),
        lambda d: d.update(fields=[d["fields"][0], *reversed(d["fields"][1:])]),
        lambda d: _line(d)["fields"].append({"name": "extra", "type": "boolean", "default": False}),
        lambda d: d.update(doc="Another sentence."),
    ],
    ids=["default", "optional", "list", "drop default", "drop optional", "order", "nested", "doc"],
)
def test_a_change_that_both_sides_survive_is_allowed(change: Change) -> None:
    assert _changed(change) == []


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (_add(name="extra", type="boolean"), {"compatibility"}),
        (_add(name="extra", type=["null", "long"]), {"compatibility"}),
        (_remove("currency"), {"compatibility"}),
        (_retype("currency", ["null", "string"]), {"compatibility"}),
        (_retype("order_version", "long"), {"compatibility", "meaning", "envelope"}),
        (_retype("currency", "bytes"), {"meaning"}),
        (_retype("currency", {"type": "string", "logicalType": "uuid"}), {"meaning"}),
        (_retype("customer_id", "string"), {"meaning"}),
        (lambda d: _fields(d)["total"]["type"].update(scale=2), {"meaning", "logical-type"}),
        (lambda d: _fields(d)["total"]["type"].update(precision=20), {"meaning", "logical-type"}),
        (lambda d: _line(d)["fields"][2]["type"].update(scale=2), {"meaning", "logical-type"}),
        (lambda d: _line(d).update(name="Line"), {"compatibility", "meaning"}),
        (lambda d: _line(d).update(namespace="shop.other"), {"meaning"}),
        (lambda d: _line(d)["fields"].append({"name": "extra", "type": "boolean"}), {"compatibility"}),
        (_retype("delivery_date", ["null", {"type": "int"}]), {"meaning"}),
    ],
)
def test_a_change_that_breaks_a_reader_or_the_meaning_is_found(change: Change, rules: set[str]) -> None:
    assert set(_changed(change)) == rules


def test_a_version_is_compared_with_all_former_ones_and_not_with_the_last_only() -> None:
    """v2 dropped `channel`; a v3 that brings it back as a list reads v2 and not v1."""
    envelope = Catalog.load().newest("shop.orders.OrderCancelled").document
    first = {**envelope, "fields": [*envelope["fields"], {"name": "channel", "type": "string", "default": ""}]}
    third = {
        **envelope,
        "fields": [
            *envelope["fields"],
            {"name": "channel", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }
    entries = [_entry(first, 1), _entry(envelope, 2), _entry(third, 3)]
    assert review(Catalog(entries[1:]), entries[2]) == []
    problems = review(Catalog(entries), entries[2])
    assert {problem.rule for problem in problems} == {"compatibility", "meaning"}
    assert any("@3 cannot read shop.orders.OrderCancelled@1" in problem.message for problem in problems)


def test_what_the_comparison_allows_is_read_by_the_reader_that_we_use() -> None:
    """Both directions with fastavro: the checker's word alone is no proof."""
    entry = Catalog.load().by_id(100002)
    assert entry is not None
    document = copy.deepcopy(entry.document)
    document["fields"].append({"name": "extra", "type": "boolean", "default": False})
    newer = fastavro.parse_schema(document, named_schemas={})
    golden = json.loads((Path(__file__).parents[2] / f"golden/{CREATED}.v2.json").read_text())
    body = bytes.fromhex(golden["cases"][0]["hex"])[5:]
    from io import BytesIO

    record: Any = fastavro.schemaless_reader(BytesIO(body), entry.schema, newer)
    assert record["extra"] is False
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, newer, record, strict=True)
    again: Any = fastavro.schemaless_reader(BytesIO(buffer.getvalue()), newer, entry.schema)
    assert again == {name: value for name, value in record.items() if name != "extra"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "registry.json", tmp_path)
    shutil.copytree(ROOT / "avro", tmp_path / "avro")
    return tmp_path


def _edit_lock(root: Path, change: Callable[[list[dict[str, Any]]], object]) -> list[str]:
    path = root / "registry.json"
    lock = json.loads(path.read_text())
    change(lock["schemas"])
    path.write_text(json.dumps(lock))
    return [problem.rule for problem in check(Catalog.read(root))]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop(),
        lambda rows: rows.pop(0),
        lambda rows: rows.reverse(),
        lambda rows: rows[0].update(id=1),
        lambda rows: rows[3].update(id=100003),
        lambda rows: rows[1].update(version=3),
        lambda rows: rows[2].update(subject="shop.orders.OrderCreated"),
        lambda rows: rows.append({**rows[2], "id": 100005, "version": 2}),
    ],
    ids=["last", "first", "order", "id", "same id", "version", "subject", "copied"],
)
def test_a_lock_that_was_not_only_appended_to_is_found(
    root: Path, change: Callable[[list[dict[str, Any]]], object]
) -> None:
    assert "lock" in _edit_lock(root, change)


def test_a_schema_file_that_nobody_locked_is_found(root: Path) -> None:
    (root / "avro/shop.orders.OrderLost.v1.avsc").write_text("{}")
    assert [(problem.rule, problem.where) for problem in check(Catalog.read(root))] == [
        ("lock", "schemas/avro/shop.orders.OrderLost.v1.avsc")
    ]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_add(name="extra", type="boolean", default=False), f"{CREATED}.extra"),
        (_remove("channel"), f"{CREATED}.channel"),
        (lambda d: _fields(d)["channel"].update(default="web"), f"{CREATED}.channel"),
        (
            lambda d: _line(d)["fields"].append({"name": "extra", "type": "boolean", "default": False}),
            f"{CREATED}.lines.extra",
        ),
        (lambda d: d.update(name="OrderLost"), "shop.orders.OrderLost"),
    ],
    ids=["added", "removed", "default", "nested", "type"],
)
def test_a_model_that_does_not_follow_its_schema_is_found(root: Path, change: Change, where: str) -> None:
    catalog = Catalog.read(root)
    document = copy.deepcopy(catalog.newest(CREATED).document)
    change(document)
    content = json.dumps(document).encode()
    catalog = append(catalog, draft(catalog, content), content)
    assert [(problem.rule, problem.where) for problem in check(catalog)] == [("model", where)]
