"""Whether the lock, the files beside it and the models agree with each other."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import fastavro
from pydantic import BaseModel

from schemas.catalog import FIRST_ID, Catalog
from schemas.events import EVENTS
from schemas.lint import Problem


def lock_problems(catalog: Catalog) -> Iterator[Problem]:
    """Find what an append-only lock cannot look like, and files that it does not know."""
    versions: dict[str, int] = {}
    documents: dict[str, str] = {}
    for expected, entry in enumerate(catalog.entries, FIRST_ID):
        versions[entry.subject] = versions.get(entry.subject, 0) + 1
        if entry.id != expected:
            yield Problem(
                str(entry), "lock", f"its id is {entry.id} where {expected} comes next; restore the lock from git"
            )
        if entry.version != versions[entry.subject]:
            yield Problem(
                str(entry), "lock", f"version {versions[entry.subject]} comes next; restore the lock from git"
            )
        if entry.schema.get("name") != entry.subject:
            yield Problem(str(entry), "lock", f"{entry.file} holds the record {entry.schema.get('name')}")
        same = documents.setdefault(fingerprint(entry.document), str(entry))
        if same != str(entry):
            yield Problem(str(entry), "lock", f"says the same as {same}; one of them is too many")
    known = {entry.file for entry in catalog.entries}
    for path in sorted(catalog.root.glob("avro/*")):
        if (name := path.relative_to(catalog.root).as_posix()) not in known:
            message = f"the lock does not know this file; `orderflow schemas add schemas/{name}`, or remove it"
            yield Problem(f"schemas/{name}", "lock", message)


def fingerprint(document: dict[str, Any]) -> str:
    """Return a text that is equal for two schemas which write the same bytes and fill in the same defaults."""
    parsed: Any = fastavro.parse_schema(document, named_schemas={})
    return json.dumps(_without_docs(parsed), sort_keys=True)


def _without_docs(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _without_docs(v) for k, v in node.items() if k != "doc" and not k.startswith("__")}
    return [_without_docs(item) for item in node] if isinstance(node, list) else node


def model_problems(catalog: Catalog) -> Iterator[Problem]:
    """Compare the newest schemas with `schemas/events.py`, field by field."""
    for name in sorted(EVENTS.keys() - set(catalog.subjects)):
        yield Problem(name, "model", "schemas/events.py has a model of this name, the lock has no schema")
    for name in catalog.subjects:
        if name not in EVENTS:
            yield Problem(name, "model", "no model in schemas/events.py; write one and add it to EVENTS")
        else:
            yield from _fields(catalog.newest(name).schema, EVENTS[name], name)


def _fields(record: dict[str, Any], model: type[BaseModel], where: str) -> Iterator[Problem]:
    fields = {field["name"]: field for field in record["fields"]}
    for name in sorted(fields.keys() - model.model_fields.keys()):
        yield Problem(f"{where}.{name}", "model", f"{model.__name__} in schemas/events.py does not have this field")
    for name in sorted(model.model_fields.keys() - fields.keys()):
        yield Problem(f"{where}.{name}", "model", f"only {model.__name__} in schemas/events.py has this field")
    for name in sorted(fields.keys() & model.model_fields.keys()):
        field, attribute = fields[name], model.model_fields[name]
        if "default" in field and (attribute.is_required() or attribute.default != field["default"]):
            message = f"the default is {json.dumps(field['default'])} in the schema and another in {model.__name__}"
            yield Problem(f"{where}.{name}", "model", message)
        inner, nested = _record_in(field["type"]), _model_in(attribute.annotation)
        if inner is not None and nested is not None:
            yield from _fields(inner, nested, f"{where}.{name}")


def _record_in(node: Any) -> dict[str, Any] | None:
    if isinstance(node, list):
        return next(filter(None, map(_record_in, node)), None)
    if not isinstance(node, dict):
        return None
    if node["type"] == "record":
        return node
    return _record_in(node.get("items") or node.get("values") or (node["type"] if node["type"] != "array" else None))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
