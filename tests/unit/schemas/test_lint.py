import copy
from typing import Any

import pytest

from schemas.catalog import Catalog
from schemas.lint import lint

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}
EMPTY = {"type": "record", "name": "Nothing", "fields": []}


def _with(*fields: dict[str, Any]) -> dict[str, Any]:
    document = copy.deepcopy(Catalog.load().newest("shop.orders.OrderCancelled").document)
    document["fields"] += fields
    return document


def _field(kind: Any, name: str = "extra", **more: Any) -> dict[str, Any]:
    return _with({"name": name, "type": kind, **more})


@pytest.mark.parametrize("entry", Catalog.load().entries, ids=str)
def test_the_locked_schemas_are_clean(entry: Any) -> None:
    assert lint(entry.document) == []


@pytest.mark.parametrize(
    "kind",
    [
        "string",
        MONEY,
        ["null", MONEY],
        ["null", {"type": "array", "items": "string"}],
        {"type": "array", "items": {"type": "record", "name": "Part", "fields": [{"name": "sku", "type": "string"}]}},
        {"type": "map", "values": "long"},
        {"type": "enum", "name": "Size", "symbols": ["UNKNOWN", "SMALL"], "default": "UNKNOWN"},
        {"type": "fixed", "name": "Hash", "size": 32},
    ],
    ids=str,
)
def test_what_readers_survive_is_allowed(kind: Any) -> None:
    assert lint(_field(kind)) == []


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (["null", "int", "string"], "union"),
        (["int", "string"], "union"),
        (["int", "null"], "union"),
        (["null"], "union"),
        ({"type": "array", "items": ["null", "int", "long"]}, "union"),
        ({"type": "map", "values": ["string", "bytes"]}, "union"),
        ({"type": "enum", "name": "Size", "symbols": ["SMALL"]}, "enum-default"),
        ({"type": "array", "items": "null"}, "zero-size-items"),
        ({"type": "array", "items": EMPTY}, "zero-size-items"),
        ({"type": "array", "items": {**EMPTY, "fields": [{"name": "a", "type": "null"}]}}, "zero-size-items"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "zero-size-items"),
        (["null", "shop.orders.OrderCancelled"], "recursion"),
        ({"type": "array", "items": "OrderCancelled"}, "recursion"),
        ({**MONEY, "scale": 2}, "logical-type"),
        ({**MONEY, "precision": 38}, "logical-type"),
        (
            {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
            "logical-type",
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, "logical-type"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "logical-type"),
        ({"type": "int", "logicalType": "time-millis"}, "logical-type"),
    ],
    ids=str,
)
def test_what_breaks_a_reader_is_found(kind: Any, rule: str) -> None:
    problems = lint(_field(kind))
    assert [problem.rule for problem in problems] == [rule]
    assert problems[0].where.startswith("shop.orders.OrderCancelled.extra")


@pytest.mark.parametrize(
    ("kind", "default", "rule"),
    [
        (MONEY, "\u0000", "logical-default"),
        ({"type": "string", "logicalType": "uuid"}, "", "logical-default"),
        ({"type": "int", "logicalType": "date"}, 0, "logical-default"),
        (["null", "int"], 5, "union-default"),
    ],
    ids=str,
)
def test_a_default_that_readers_hand_out_wrongly_is_found(kind: Any, default: Any, rule: str) -> None:
    assert [problem.rule for problem in lint(_field(kind, default=default))] == [rule]


@pytest.mark.parametrize(
    "name",
    [
        "email",
        "customerEmail",
        "customer_name",
        "phone",
        "shipping_address",
        "IPAddress",
        "card",
        "cardNumber",
        "access_token",
        "APIToken",
        "comment",
        "gift_message",
    ],
)
def test_a_name_that_announces_personal_data_is_found(name: str) -> None:
    assert [problem.rule for problem in lint(_field("string", name))] == ["personal-data"]
    nested = {
        "type": "array",
        "items": {"type": "record", "name": "Part", "fields": [{"name": name, "type": "string"}]},
    }
    assert [problem.rule for problem in lint(_field(nested))] == ["personal-data"]
    assert [problem.rule for problem in lint(_field("string", aliases=[name]))] == ["personal-data"]


@pytest.mark.parametrize("name", ["discard", "emailed_count_of_cards", "zipped", "shipped", "tokens_left", "renamed"])
def test_only_whole_words_count(name: str) -> None:
    assert lint(_field("int", name)) == []


@pytest.mark.parametrize("name", ["a-b", "class", "größe", "2nd", "a b"])
def test_a_name_that_a_model_cannot_carry_is_found(name: str) -> None:
    assert [problem.rule for problem in lint(_field("int", name))] == ["name"]


def test_every_event_has_the_envelope() -> None:
    document = _with()
    document["fields"] = [field for field in document["fields"] if field["name"] != "event_id"]
    assert [(problem.rule, problem.where) for problem in lint(document)] == [
        ("envelope", "shop.orders.OrderCancelled.event_id")
    ]
    document = _with()
    document["fields"][3]["type"] = "long"
    assert [problem.rule for problem in lint(document)] == ["envelope"]
    document = _with()
    document["fields"][3]["default"] = 1
    assert [problem.rule for problem in lint(document)] == ["envelope"]


def test_the_event_id_comes_first() -> None:
    document = _with()
    document["fields"].reverse()
    assert ("envelope", "shop.orders.OrderCancelled.event_id") in [
        (problem.rule, problem.where) for problem in lint(document)
    ]


def test_a_record_has_a_namespace() -> None:
    document = _with()
    del document["namespace"]
    assert [problem.rule for problem in lint(document)] == ["namespace"]


@pytest.mark.parametrize(
    "schema",
    [
        "int",
        5,
        None,
        [],
        {},
        {"type": "record"},
        {"type": "recordx", "name": "A"},
        {"type": "enum", "name": "A", "symbols": ["A"], "default": "A"},
        _field("Unknown"),
        _field("int", ""),
        _field("int", default="text"),
        _field({"type": "enum", "name": "Size", "symbols": ["A"], "default": "B"}),
        _field({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 4}),
        _with({"name": "twice", "type": "int"}, {"name": "twice", "type": "int"}),
        _field({"type": "array"}),
    ],
    ids=str,
)
def test_what_is_no_schema_of_an_event_is_a_problem_and_no_exception(schema: Any) -> None:
    assert [problem.rule for problem in lint(schema)] == ["invalid"]
