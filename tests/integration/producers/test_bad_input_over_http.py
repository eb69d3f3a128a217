"""Whatever is sent, the answer is the right problem+json, and nothing is stored."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from psycopg import Connection
from psycopg_pool import ConnectionPool

from producers import auth

CUSTOMER = str(uuid4())
LINE = {"sku": "TEA-01", "quantity": 1, "unit_price": "1"}
GOOD: dict[str, Any] = {"customer_id": CUSTOMER, "currency": "EUR", "lines": [LINE]}
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def nothing_is_stored(shop_pool: ConnectionPool[Connection]) -> Iterator[None]:
    yield
    with shop_pool.connection() as connection:
        for table in ("orders", "outbox", "idempotency_keys", "customers"):
            found = connection.execute(f"SELECT count(*) FROM api.{table}").fetchone()
            assert found == (0,), table


def line(**changes: Any) -> dict[str, Any]:
    return GOOD | {"lines": [LINE | changes]}


def assert_problem(answer: Any, status: int, told: object = "") -> None:
    assert answer.status_code == status, (told, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert body["type"]


def test_a_body_that_is_no_json_is_malformed(http: TestClient) -> None:
    for content in (
        b"",
        b"{",
        b"order",
        b'{"a": NaN}',
        b"\xff\xfe",
        json.dumps(GOOD).encode("utf-16"),
        b"[" * 60_000,
        b'{"quantity": ' + b"9" * 5_000 + b"}",
        json.dumps(GOOD).encode() + b"x",
    ):
        assert_problem(http.post("/v1/orders", content=content, headers=JSON), 400, content[:30])


def test_a_wrong_field_is_named_and_its_value_is_not_repeated(http: TestClient) -> None:
    wrong: list[tuple[str, Any]] = [
        ("", []),
        ("", "text"),
        ("", None),
        ("/customer_id", {"currency": "EUR", "lines": [LINE]}),
        ("/customer_id", GOOD | {"customer_id": "secret-4711"}),
        ("/customer_id", GOOD | {"customer_id": CUSTOMER.upper()}),
        ("/customer_id", GOOD | {"customer_id": CUSTOMER.replace("-", "")}),
        ("/customer_id", GOOD | {"customer_id": 7}),
        ("/currency", GOOD | {"currency": "eur"}),
        ("/currency", GOOD | {"currency": "EURO"}),
        ("/currency", GOOD | {"currency": ["EUR"]}),
        ("/lines", GOOD | {"lines": []}),
        ("/lines", GOOD | {"lines": [LINE] * 201}),
        ("/lines", GOOD | {"lines": LINE}),
        ("/lines/0/sku", line(sku="TEA 01")),
        ("/lines/0/sku", line(sku="")),
        ("/lines/0/sku", line(sku="T" * 65)),
        ("/lines/0/quantity", line(quantity=0)),
        ("/lines/0/quantity", line(quantity=-1)),
        ("/lines/0/quantity", line(quantity=10_001)),
        ("/lines/0/quantity", line(quantity="1")),
        ("/lines/0/quantity", line(quantity=1.5)),
        ("/lines/0/quantity", line(quantity=True)),
        ("/lines/0/unit_price", line(unit_price=-0.01)),
        ("/lines/0/unit_price", line(unit_price="-1")),
        ("/lines/0/unit_price", line(unit_price="1.00001")),
        ("/lines/0/unit_price", line(unit_price=0.00001)),
        ("/lines/0/unit_price", line(unit_price="1e3")),
        ("/lines/0/unit_price", line(unit_price=" 1")),
        ("/lines/0/unit_price", line(unit_price="1_0")),
        ("/lines/0/unit_price", line(unit_price="NaN")),
        ("/lines/0/unit_price", line(unit_price=True)),
        ("/lines/0/unit_price", line(unit_price=None)),
        ("/lines/0/unit_price", line(unit_price=100_000_000_000_000)),
        ("/lines/0/discount", line(discount=1)),
        ("/channel", GOOD | {"channel": "4111111111111111"}),
        ("/note", GOOD | {"note": "please ring"}),
    ]
    for pointer, body in wrong:
        answer = http.post("/v1/orders", content=json.dumps(body), headers=JSON)
        assert_problem(answer, 422, body)
        assert pointer in [error["pointer"] for error in answer.json()["errors"]], answer.text
        assert "secret-4711" not in answer.text
        assert "4111111111111111" not in answer.text


def test_a_number_that_would_fill_the_memory_is_refused(http: TestClient) -> None:
    content = json.dumps(line(unit_price=7)).replace("7", "1e999999999").encode()
    assert_problem(http.post("/v1/orders", content=content, headers=JSON), 422)


def test_a_total_that_does_not_fit_is_refused(http: TestClient) -> None:
    answer = http.post("/v1/orders", json=line(unit_price="99999999999999.9999", quantity=2))
    assert_problem(answer, 422)
    assert answer.json()["type"] == "urn:orderflow:problem:wrong-amount"


def test_ten_thousand_lines_get_a_short_answer(http: TestClient) -> None:
    many = json.dumps(GOOD | {"lines": [{}] * 10_000}).encode()
    answer = http.post("/v1/orders", content=many, headers=JSON)
    assert_problem(answer, 422)
    assert len(answer.content) < 10_000


def test_an_email_anywhere_in_an_order_is_refused_with_the_reason(http: TestClient) -> None:
    place = f"/v1/orders/{uuid4()}"
    for path, body in (
        ("/v1/orders", GOOD | {"channel": "ada@shop.example"}),
        ("/v1/orders", line(sku="ada@shop.example")),
        ("/v1/orders", GOOD | {"contact": {"mails": ["call me", "<ada@shop.example>"]}}),
        ("/v1/orders", GOOD | {"ada@shop.example": 1}),
        (f"{place}/payment", {"payment_id": CUSTOMER, "amount": 1, "method": "ada@shop.example"}),
        (f"{place}/cancellation", {"reason": "ada@shop.example"}),
    ):
        answer = http.post(path, json=body)
        assert_problem(answer, 422, body)
        assert answer.json()["type"] == "urn:orderflow:problem:personal-data"
        assert "email" in answer.json()["detail"]
        assert "ada" not in answer.text
    escaped = json.dumps(GOOD | {"channel": "ada@shop.example"}).replace("@", "\\u0040").encode()
    answer = http.post("/v1/orders", content=escaped, headers=JSON)
    assert answer.json()["type"] == "urn:orderflow:problem:personal-data"


def test_another_content_type_is_unsupported(http: TestClient) -> None:
    for name in ("text/plain", "application/x-www-form-urlencoded", "application/xml", "application/jsonx"):
        answer = http.post("/v1/orders", content=json.dumps(GOOD), headers={"content-type": name})
        assert_problem(answer, 415, name)
    assert_problem(http.post("/v1/orders", content=json.dumps(GOOD)), 415)
    assert_problem(http.put(f"/v1/customers/{CUSTOMER}", content="{}"), 415)


def test_a_body_over_the_limit_is_too_large(http: TestClient) -> None:
    content = json.dumps(GOOD).encode() + b" " * 65_536
    assert_problem(http.post("/v1/orders", content=content, headers=JSON), 413)


def test_a_missing_foreign_or_revoked_key_is_unauthorized_before_the_body_is_looked_at(
    http: TestClient, shop_pool: ConnectionPool[Connection]
) -> None:
    with shop_pool.connection() as connection:
        revoked = auth.new_key(connection, "checkout")
        assert auth.revoke(connection, revoked.split("_")[1])
        other = auth.new_key(connection, "checkout")
    key_id, secret = other.split("_", 2)[1:]
    for value in (
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic b2s6c2VjcmV0",
        "Bearer nonsense",
        f"Bearer {revoked}",
        f"Bearer ofk_{key_id}_{secret[:-1]}",
        f"Bearer ofk_{key_id}_",
        f"Bearer ofk_{'0' * 12}_{secret}",
        f"Bearer xyz_{key_id}_{secret}",
        other,
    ):
        del http.headers["authorization"]
        if value is not None:
            http.headers["authorization"] = value
        for answer in (
            http.post("/v1/orders", content=b"{", headers=JSON),
            http.get(f"/v1/orders/{CUSTOMER}"),
            http.delete(f"/v1/customers/{CUSTOMER}"),
        ):
            assert_problem(answer, 401, value)
            assert answer.headers["www-authenticate"] == "Bearer"
        http.headers.setdefault("authorization", "")


def test_a_wrong_idempotency_key_is_refused(http: TestClient) -> None:
    for key in ("", "k" * 256, "two words", "ümlaut"):
        headers = {b"Idempotency-Key": key.encode(), b"Authorization": http.headers["authorization"].encode()}
        answer = http.post("/v1/orders", json=GOOD, headers=headers)
        assert_problem(answer, 422, key)


def test_unknown_paths_and_methods_are_problems_too(http: TestClient) -> None:
    assert_problem(http.get("/"), 404)
    assert_problem(http.get("/v2/orders"), 404)
    assert_problem(http.get("/metrics"), 404)
    assert_problem(http.get("/docs"), 404)
    answer = http.get("/v1/orders")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "POST"
    assert_problem(http.delete(f"/v1/customers/{CUSTOMER.upper()}"), 422)


def test_a_failure_of_ours_is_a_problem_that_tells_nothing(
    http: TestClient, api_parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        message = "a secret detail"
        raise RuntimeError(message)

    monkeypatch.setattr(api_parts.store, "place", fail)
    answer = http.post("/v1/orders", json=GOOD)
    assert_problem(answer, 500)
    assert "secret" not in answer.text


def test_every_operation_declares_its_problems_and_nothing_else_than_json(http: TestClient) -> None:
    api = http.get("/openapi.json").json()
    operations = [(path, verb, what) for path, verbs in api["paths"].items() for verb, what in verbs.items()]
    assert len(operations) == 6
    for path, verb, what in operations:
        statuses = set(what["responses"])
        assert {"401", "413", "500", "503"} <= statuses, (path, verb)
        assert ({"400", "415", "422"} <= statuses) == (verb in {"post", "put"}), (path, verb)
        for status, answer in what["responses"].items():
            kinds = list(answer.get("content", {}))
            assert kinds == (["application/problem+json"] if status >= "400" else kinds), (path, verb, status)
        assert what["security"]
    assert "ProblemBody" in api["components"]["schemas"]
    assert "HTTPValidationError" not in api["components"]["schemas"]
