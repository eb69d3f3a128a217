import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orderflow.core.errors import OrderflowError, Refused
from schemas.catalog import ROOT, Catalog
from schemas.lock import append, draft, rendered


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    shutil.copy(ROOT / "registry.json", tmp_path)
    shutil.copytree(ROOT / "avro", tmp_path / "avro")
    return Catalog.read(tmp_path)


def _newer(**changes: Any) -> bytes:
    document = copy.deepcopy(Catalog.load().newest("shop.orders.OrderPaid").document)
    document["fields"].append({"name": "extra", "type": "int", "default": 1})
    return json.dumps({**document, **changes}).encode()


def test_a_new_version_gets_the_next_id_and_nothing_else_changes(catalog: Catalog) -> None:
    before = (catalog.root / "registry.json").read_text()
    content = _newer()
    entry = draft(catalog, content)
    former = catalog.newest("shop.orders.OrderPaid")
    assert (entry.id, entry.version) == (catalog.entries[-1].id + 1, former.version + 1)
    append(catalog, entry, content)
    assert (catalog.root / "registry.json").read_text().startswith(before.removesuffix("\n  ]\n}\n"))
    assert (catalog.root / entry.file).read_bytes() == content
    again = Catalog.read(catalog.root)
    assert again.entries == (*catalog.entries, entry)
    assert again.newest("shop.orders.OrderPaid") == entry
    assert sorted(path.name for path in catalog.root.iterdir()) == ["avro", "registry.json"]


def test_a_new_type_starts_at_version_1(catalog: Catalog) -> None:
    entry = draft(catalog, _newer(name="NotYetKnown"))
    assert (entry.version, entry.file) == (1, "avro/shop.orders.NotYetKnown.v1.avsc")


def test_the_lock_on_disk_is_what_would_be_written() -> None:
    assert rendered(Catalog.load()) == (ROOT / "registry.json").read_bytes()


def test_the_same_schema_is_not_added_twice_whatever_its_docs_say(catalog: Catalog) -> None:
    document = {**catalog.newest("shop.orders.OrderPaid").document, "doc": "Other words."}
    with pytest.raises(Refused, match=r"same as shop\.orders\.OrderPaid@1"):
        draft(catalog, json.dumps(document).encode())


def test_another_file_in_its_place_is_not_overwritten(catalog: Catalog) -> None:
    place = catalog.root / draft(catalog, _newer()).file
    place.write_text("somebody's work")
    with pytest.raises(Refused, match="holds something else"):
        append(catalog, draft(catalog, _newer()), _newer())
    assert place.read_text() == "somebody's work"
    assert Catalog.read(catalog.root).entries == catalog.entries


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"[]", b"5", b'"int"', b'{"type": "record"}', b"[" * 100_000])
def test_a_file_without_a_record_is_refused_with_a_sentence(catalog: Catalog, content: bytes) -> None:
    with pytest.raises(OrderflowError, match="the file holds no"):
        draft(catalog, content)


def test_a_write_that_fails_leaves_the_lock_as_it_was(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (catalog.root / "registry.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        append(catalog, draft(catalog, _newer()), _newer())
    assert (catalog.root / "registry.json").read_bytes() == before
    assert not [path for path in catalog.root.rglob("*") if path.name.startswith(".")]
