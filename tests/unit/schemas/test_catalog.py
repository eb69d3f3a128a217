import json
import shutil
from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from schemas.catalog import ROOT, Catalog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "registry.json", tmp_path)
    shutil.copytree(ROOT / "avro", tmp_path / "avro")
    return tmp_path


def test_the_packaged_ids_never_change() -> None:
    assert [(entry.id, str(entry)) for entry in Catalog.load().entries[:4]] == [
        (100001, "shop.orders.OrderCreated@1"),
        (100002, "shop.orders.OrderCreated@2"),
        (100003, "shop.orders.OrderPaid@1"),
        (100004, "shop.orders.OrderCancelled@1"),
    ]


def test_the_packaged_catalog_is_read_once() -> None:
    assert Catalog.load() is Catalog.load()


def test_schemas_are_found_by_id_and_newest_by_name() -> None:
    catalog = Catalog.load()
    entry = catalog.by_id(100001)
    assert entry is not None
    assert (entry.type_name, entry.version) == ("shop.orders.OrderCreated", 1)
    assert catalog.by_id(1) is None
    versions = catalog.versions("shop.orders.OrderCreated")
    assert [former.version for former in versions] == list(range(1, len(versions) + 1))
    assert versions[:2] == list(catalog.entries[:2])
    assert catalog.newest("shop.orders.OrderCreated") is versions[-1]
    with pytest.raises(KeyError):
        catalog.newest("shop.orders.OrderLost")


def test_a_changed_schema_file_is_refused_with_what_to_do(root: Path) -> None:
    file = root / "avro/shop.orders.OrderPaid.v1.avsc"
    file.write_text(file.read_text().replace("What was paid", "What was payed"))
    with pytest.raises(Misconfigured, match=r"OrderPaid\.v1\.avsc is not the file that was locked as id 100003.*git"):
        Catalog.read(root)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schemas": 5}', '{"schemas": [{"id": 1}]}', "\xff"])
def test_an_unreadable_lock_is_refused_with_a_sentence(root: Path, content: str) -> None:
    (root / "registry.json").write_text(content, encoding="latin-1")
    with pytest.raises(Misconfigured, match=r"registry\.json cannot be read"):
        Catalog.read(root)


def test_a_missing_lock_or_schema_file_is_refused(root: Path) -> None:
    (root / "avro/shop.orders.OrderPaid.v1.avsc").unlink()
    with pytest.raises(Misconfigured, match=r"OrderPaid\.v1\.avsc"):
        Catalog.read(root)
    (root / "registry.json").unlink()
    with pytest.raises(Misconfigured, match=r"registry\.json"):
        Catalog.read(root)


def test_a_lock_with_a_schema_that_is_none_is_refused(root: Path) -> None:
    from schemas.catalog import digest

    (root / "avro/x.avsc").write_text('{"type": "recordx", "name": "x"}')
    row = {"id": 1, "subject": "x", "version": 1, "file": "avro/x.avsc"}
    row["sha256"] = digest((root / "avro/x.avsc").read_bytes())
    (root / "registry.json").write_text(json.dumps({"schemas": [row]}))
    with pytest.raises(Misconfigured, match=r"registry\.json cannot be read"):
        Catalog.read(root)
