"""May this schema join its former versions? FULL_TRANSITIVE compatibility, checked offline. Pure.

Every version must read every other version of its subject. `avro.compatibility` decides what the
Avro specification says; `_drift` finds the changes that it calls compatible and that alter values.
"""

import json
from collections.abc import Iterator
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from schemas.catalog import Catalog, SchemaEntry
from schemas.consistency import lock_problems, model_problems
from schemas.lint import Problem, lint

_COMPARED = ("logicalType", "precision", "scale", "size")


def check(catalog: Catalog) -> list[Problem]:
    """Return everything that is wrong with the lock, its schemas, their history and their models."""
    problems = [*lock_problems(catalog), *model_problems(catalog)]
    for entry in catalog.entries:
        problems += review(catalog, entry)
    return problems


def review(catalog: Catalog, entry: SchemaEntry) -> list[Problem]:
    """Return what is wrong with one schema: the lint, and its compatibility with each former version."""
    problems = [Problem(f"{entry}: {p.where}", p.rule, p.message) for p in lint(entry.document)]
    if any(problem.rule == "invalid" for problem in problems):
        return problems
    for former in catalog.versions(entry.subject):
        if former.version < entry.version:
            problems += compatibility(former, entry)
    return problems


def compatibility(former: SchemaEntry, newer: SchemaEntry) -> list[Problem]:
    """Return why the two versions of one subject cannot read each other's records with the same meaning."""
    problems = []
    for reader, writer in ((newer, former), (former, newer)):
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # avro's gap
        result = checker.get_compatibility(_avro(reader), _avro(writer))
        if result.compatibility is not SchemaCompatibilityType.compatible:
            why = ", ".join(sorted({str(kind.value) for kind in result.incompatibilities}))
            what = ", ".join(sorted(result.messages))
            problems.append(Problem(str(newer), "compatibility", f"{reader} cannot read {writer}: {why} ({what})"))
    for where, what in _Drift().between(former.schema, newer.schema, newer.subject):
        problems.append(Problem(f"{newer}: {where}", "meaning", f"{what} since {former}; add a new field instead"))
    return problems


def _avro(entry: SchemaEntry) -> avro.schema.Schema:
    return avro.schema.parse(json.dumps(entry.document))


class _Drift:
    """Walks two parsed schemas side by side; fields meet by name."""

    def __init__(self) -> None:
        self.named: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self.seen: set[tuple[str, str]] = set()

    def between(self, old: Any, new: Any, where: str) -> Iterator[tuple[str, str]]:
        old, new = self._resolved(old, 0), self._resolved(new, 1)
        if isinstance(old, list) and isinstance(new, list):
            for one, other in zip(old, new, strict=False):
                yield from self.between(one, other, where)
            return
        if isinstance(old, list) or isinstance(new, list):
            return  # avro.compatibility refuses this in one direction
        if old["type"] != new["type"]:
            yield where, f"the type changed from {old['type']} to {new['type']}"
            return
        for key in _COMPARED:
            if old.get(key) != new.get(key):
                yield where, f"{key} changed from {old.get(key)} to {new.get(key)}"
        # avro.compatibility compares names without their namespace; fastavro compares the whole.
        if old.get("name") != new.get("name"):
            yield where, f"the name changed from {old['name']} to {new['name']}"
        yield from self._inside(old, new, where)

    def _inside(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
        match new["type"]:
            case "array":
                yield from self.between(old["items"], new["items"], f"{where}[]")
            case "map":
                yield from self.between(old["values"], new["values"], f"{where}{{}}")
            case "record":
                pair = (old["name"], new["name"])
                if pair in self.seen:
                    return
                self.seen.add(pair)
                before = {field["name"]: field["type"] for field in old["fields"]}
                for field in new["fields"]:
                    if field["name"] in before:
                        yield from self.between(before[field["name"]], field["type"], f"{where}.{field['name']}")

    def _resolved(self, node: Any, side: int) -> Any:
        if isinstance(node, list):
            return node
        if isinstance(node, str):
            return self.named[side].get(node, {"type": node})
        if isinstance(node["type"], dict | list):
            return self._resolved(node["type"], side)
        if "name" in node:
            self.named[side][node["name"]] = node
        return node


__all__ = ["Problem", "check", "compatibility", "lint", "review"]
