"""The lock file and what it locks: which schema an id means, and which version is the newest.

`registry.json` is the only authority for ids. It is append-only: an entry and its `.avsc` file
never change once records with that id may exist, and no server is asked at run time.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import fastavro
from fastavro.schema import SchemaParseException

from orderflow.core.errors import Misconfigured

ROOT = Path(__file__).parent
LOCK_NAME = "registry.json"
FIRST_ID = 100_001
"""Ids start here so that they collide with no id that a registry gave out by counting from 1."""


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One locked schema: `document` as the file says it, `schema` as fastavro wants it."""

    id: int
    subject: str
    version: int
    file: str
    sha256: str
    document: dict[str, Any]
    schema: Any

    @property
    def type_name(self) -> str:
        """The full name of the record, which is also the subject and the `ce_type`."""
        return self.subject

    def __str__(self) -> str:
        """Return the form that the command line takes, as in `shop.orders.OrderPaid@1`."""
        return f"{self.subject}@{self.version}"


class Catalog:
    """The locked schemas by id and by name. Immutable."""

    def __init__(self, entries: Iterable[SchemaEntry], root: Path = ROOT) -> None:
        """Index the entries; the order given is kept."""
        self.entries = tuple(entries)
        self.root = root
        self._by_id = {entry.id: entry for entry in self.entries}
        self._newest: dict[str, SchemaEntry] = {}
        for entry in self.entries:
            former = self._newest.get(entry.subject)
            if former is None or former.version < entry.version:
                self._newest[entry.subject] = entry

    @classmethod
    @cache
    def load(cls) -> Self:
        """Return the catalog that ships with this program, read once. Raises as `read` does."""
        return cls.read(ROOT)

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read `registry.json` and the files it names under `root`.

        Raises `Misconfigured` when the lock or a file cannot be read, or when a file is not the one
        that was locked.
        """
        path = root / LOCK_NAME
        try:
            rows = json.loads(path.read_bytes())["schemas"]
            return cls([_entry(root, row) for row in rows], root)
        except (OSError, ValueError, LookupError, TypeError, SchemaParseException) as error:
            message = f"schemas/{LOCK_NAME} cannot be read ({type(error).__name__}: {error}); restore it from git"
            raise Misconfigured(message) from error

    def by_id(self, schema_id: int) -> SchemaEntry | None:
        """Return the entry of this id, None when the lock does not hold it."""
        return self._by_id.get(schema_id)

    def newest(self, full_name: str) -> SchemaEntry:
        """Return the newest version of this record. Raises `KeyError` for a name that is not locked."""
        return self._newest[full_name]

    def versions(self, full_name: str) -> list[SchemaEntry]:
        """Return all versions of this record, oldest first; empty for an unknown name."""
        return sorted((e for e in self.entries if e.subject == full_name), key=lambda e: e.version)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The full names of all locked records, sorted."""
        return tuple(sorted(self._newest))


def digest(content: bytes) -> str:
    """Return the sha256 that locks a schema file: of its bytes as they lie, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _entry(root: Path, row: dict[str, Any]) -> SchemaEntry:
    content = (root / row["file"]).read_bytes()
    if digest(content) != row["sha256"]:
        message = (
            f"schemas/{row['file']} is not the file that was locked as id {row['id']}: records with that id could no"
            " longer be read. Restore it from git; a change is a new version (`orderflow schemas add FILE`)"
        )
        raise Misconfigured(message)
    document = json.loads(content)
    return SchemaEntry(
        id=row["id"],
        subject=row["subject"],
        version=row["version"],
        file=row["file"],
        sha256=row["sha256"],
        document=document,
        schema=fastavro.parse_schema(document, named_schemas={}),
    )
