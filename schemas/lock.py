"""Appending to the lock: the next id for a new schema, and the two files that change."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from orderflow.core.errors import OrderflowError, Refused
from schemas.catalog import FIRST_ID, LOCK_NAME, Catalog, SchemaEntry, digest
from schemas.consistency import fingerprint


def draft(catalog: Catalog, content: bytes) -> SchemaEntry:
    """Return the entry that this schema file would become: the next id, the next version of its record.

    Raises `OrderflowError` when it is no Avro schema of a record, `Refused` when a locked version
    already says the same.
    """
    document, name = _parsed(content)
    for former in catalog.versions(name):
        if fingerprint(former.document) == fingerprint(document):
            raise Refused(f"this schema says the same as {former} (id {former.id}); there is nothing to add")
    version = len(catalog.versions(name)) + 1
    return SchemaEntry(
        id=max((entry.id for entry in catalog.entries), default=FIRST_ID - 1) + 1,
        subject=name,
        version=version,
        file=f"avro/{name}.v{version}.avsc",
        sha256=digest(content),
        document=document,
        schema=fastavro.parse_schema(document, named_schemas={}),
    )


def append(catalog: Catalog, entry: SchemaEntry, content: bytes) -> Catalog:
    """Write the schema file, then the lock, and return the catalog as it is now.

    Raises `Refused` when another file stands in the schema's place, `OSError` when the folder
    cannot be written.
    """
    target = catalog.root / entry.file
    if target.exists() and target.read_bytes() != content:
        raise Refused(f"schemas/{entry.file} exists and holds something else; remove it or add that file itself")
    _replace(target, content)
    after = Catalog((*catalog.entries, entry), catalog.root)
    _replace(catalog.root / LOCK_NAME, rendered(after))
    return after


def rendered(catalog: Catalog) -> bytes:
    """Return the lock file of a catalog, sorted by id."""
    rows = [
        {"id": entry.id, "subject": entry.subject, "version": entry.version, "file": entry.file, "sha256": entry.sha256}
        for entry in sorted(catalog.entries, key=lambda entry: entry.id)
    ]
    return (json.dumps({"schemas": rows}, indent=2) + "\n").encode()


def _parsed(content: bytes) -> tuple[dict[str, Any], str]:
    try:
        document = json.loads(content)
        parsed: Any = fastavro.parse_schema(document, named_schemas={})
        if parsed["type"] == "record":
            return document, parsed["name"]
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise OrderflowError(f"the file holds no Avro schema ({type(error).__name__}: {error})") from error
    raise OrderflowError("the file holds no record; an event is one Avro record")


def _replace(path: Path, content: bytes) -> None:
    """Write beside the file and rename: whoever reads sees the old content or the new."""
    path.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
