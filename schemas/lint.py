"""What a schema of ours may not contain, whatever its former versions were. Pure.

Each rule stands for something that Avro allows and that breaks a reader later, or that may not
be in an event at all.
"""

import json
import keyword
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import avro.errors
import avro.schema
import fastavro
from fastavro.schema import SchemaParseException

ENVELOPE: dict[str, Any] = {
    "event_id": {"type": "string", "logicalType": "uuid"},
    "occurred_at": {"type": "long", "logicalType": "timestamp-micros"},
    "order_id": {"type": "string", "logicalType": "uuid"},
    "order_version": "int",
}
"""The fields that every event has, and their types."""

# The logical types that the models and both Avro libraries read alike. Of the rest, local
# timestamps lose their zone, milliseconds lose precision, times of day and fixed decimals are not needed.
LOGICAL_TYPES: dict[str, dict[str, Any]] = {
    "uuid": {"type": "string"},
    "timestamp-micros": {"type": "long"},
    "date": {"type": "int"},
    "decimal": {"type": "bytes", "precision": 18, "scale": 4},
}

PERSONAL_WORDS = frozenset(
    """
    email mail name firstname lastname surname fullname username phone telephone mobile fax address street city zip
    postcode postal birth birthday birthdate dob gender ssn passport latitude longitude ip card pan cvv cvc iban bic
    token secret password passwd pwd credential credentials signature note notes comment comments remark remarks
    message text
    """.split()  # noqa: SIM905 - a list of one word a line would be longer than the rules
)
"""Words of a field's name that announce personal data, a secret or free text."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend: `where` is a schema and the place in it, `rule` a short name, `message` a sentence."""

    where: str
    rule: str
    message: str


def lint(schema: dict[str, Any]) -> list[Problem]:
    """Return what is wrong with one schema on its own, in the order of its fields; empty when it may be locked."""
    invalid = _invalid(schema)
    if invalid is not None:
        return [Problem(str(schema.get("name", "?")) if isinstance(schema, dict) else "?", "invalid", invalid)]
    parsed: Any = fastavro.parse_schema(schema, named_schemas={})
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        return [Problem("?", "invalid", "an event is a record")]
    return [*_envelope(parsed), *_Walk().node(parsed, parsed["name"])]


def _invalid(schema: Any) -> str | None:
    """Ask both libraries: each of them lets pass what the other refuses."""
    try:
        fastavro.parse_schema(schema, named_schemas={})
        with warnings.catch_warnings(action="ignore", category=avro.errors.IgnoredLogicalType):
            avro.schema.parse(json.dumps(schema))
    except (
        SchemaParseException,
        avro.errors.AvroException,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        return f"not a valid Avro schema ({type(error).__name__}: {error})"
    except RecursionError:
        return "not a valid Avro schema (nested too deeply)"
    return None


def _envelope(record: dict[str, Any]) -> Iterator[Problem]:
    if "." not in record["name"]:
        yield Problem(record["name"], "namespace", "give the record a namespace: its full name is what `ce_type` says")
    fields = {field["name"]: field for field in record["fields"]}
    if "event_id" in fields and record["fields"][0]["name"] != "event_id":
        yield Problem(f"{record['name']}.event_id", "envelope", "this field comes first: it is read before decoding")
    for name, expected in ENVELOPE.items():
        if name not in fields:
            yield Problem(f"{record['name']}.{name}", "envelope", "every event has this field; copy it from another")
        elif fields[name]["type"] != expected or "default" in fields[name]:
            yield Problem(
                f"{record['name']}.{name}", "envelope", f"the type of this field is {json.dumps(expected)}, no default"
            )


class _Walk:
    """Visits every type of one parsed schema, where names are already full names."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        self.open: list[str] = []

    def node(self, node: Any, where: str) -> Iterator[Problem]:
        if isinstance(node, list):
            yield from self.union(node, where)
        elif isinstance(node, str):
            if node in self.open:
                yield Problem(where, "recursion", f"{node} contains itself: hostile bytes could nest it without end")
        elif isinstance(node["type"], dict | list):
            yield from self.node(node["type"], where)
        else:
            yield from self.complex(node, where)

    def complex(self, node: dict[str, Any], where: str) -> Iterator[Problem]:
        match node["type"]:
            case "record":
                yield from self.record(node, where)
            case "enum":
                self.named[node["name"]] = node
                if "default" not in node:
                    yield Problem(where, "enum-default", "give the enum a default: a reader must survive a new symbol")
            case "fixed":
                self.named[node["name"]] = node
            case "array":
                yield from self.node(node["items"], f"{where}[]")
                if self.is_zero_size(node["items"]):
                    yield Problem(
                        where, "zero-size-items", "items without bytes: ten bytes could announce 2^63 of them"
                    )
            case "map":
                yield from self.node(node["values"], f"{where}{{}}")
        yield from self.logical(node, where)

    def record(self, node: dict[str, Any], where: str) -> Iterator[Problem]:
        self.named[node["name"]] = node
        self.open.append(node["name"])
        for field in node["fields"]:
            place = f"{where}.{field['name']}"
            yield from _named(field, place)
            yield from _personal(field, place)
            yield from _default(field, place)
            yield from self.node(field["type"], place)
        self.open.pop()

    def union(self, node: list[Any], where: str) -> Iterator[Problem]:
        if len(node) != 2 or node[0] != "null":  # noqa: PLR2004 - null and one other
            yield Problem(where, "union", 'the only union allowed is ["null", X]: others pick the wrong branch')
        for branch in node:
            yield from self.node(branch, where)

    def logical(self, node: dict[str, Any], where: str) -> Iterator[Problem]:
        kind = node.get("logicalType")
        if kind is None:
            return
        expected = LOGICAL_TYPES.get(kind)
        if expected is None:
            yield Problem(where, "logical-type", f"{kind} is not among {', '.join(LOGICAL_TYPES)}")
        elif any(node.get(key) != value for key, value in expected.items()):
            yield Problem(
                where, "logical-type", f"{kind} is written as {json.dumps({**expected, 'logicalType': kind})}"
            )

    def is_zero_size(self, node: Any) -> bool:
        if isinstance(node, list):
            return False
        if isinstance(node, str):
            # A name that is still open is a recursion, which has its own rule.
            return node == "null" or (
                node not in self.open and node in self.named and self.is_zero_size(self.named[node])
            )
        if isinstance(node["type"], dict | list):
            return self.is_zero_size(node["type"])
        match node["type"]:
            case "record":
                return node["name"] not in self.open and all(self.is_zero_size(f["type"]) for f in node["fields"])
            case "fixed":
                return bool(node["size"] == 0)
            case other:
                return bool(other == "null")


def _named(field: dict[str, Any], where: str) -> Iterator[Problem]:
    name = field["name"]
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        yield Problem(where, "name", "a field's name is letters, digits and _, and no word of Python: models carry it")


def _personal(field: dict[str, Any], where: str) -> Iterator[Problem]:
    for name in (field["name"], *field.get("aliases", ())):
        words = {word.lower() for word in _WORD.findall(name)}
        if found := sorted(words & PERSONAL_WORDS):
            yield Problem(
                where,
                "personal-data",
                f"'{found[0]}' announces personal data, a secret or free text: the log is kept for ever, so an event"
                " carries an id and the consumer looks the rest up",
            )


def _default(field: dict[str, Any], where: str) -> Iterator[Problem]:
    if "default" not in field:
        return
    kind = field["type"]
    if isinstance(kind, list) and field["default"] is not None:
        yield Problem(where, "union-default", "the default of an optional field is null")
    if isinstance(kind, dict) and "logicalType" in kind:
        yield Problem(
            where,
            "logical-default",
            f"readers hand out the raw default, not a {kind['logicalType']}: make the field optional with default null",
        )
