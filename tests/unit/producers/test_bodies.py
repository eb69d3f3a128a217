import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from producers.bodies import CustomerEntry, OrderBody, PlaceOrder, canonical_uuid, exact_money

ORDER: dict[str, Any] = {
    "customer_id": "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": 1}],
}


@given(st.decimals(0, Decimal("99999999999999.9999"), places=4, allow_nan=False))
def test_every_amount_of_four_decimals_is_kept_exactly(amount: Decimal) -> None:
    assert exact_money(f"{amount:f}") == amount
    assert exact_money(json.loads(f"{amount:f}", parse_float=Decimal)) == amount


@pytest.mark.parametrize(
    "value", [-1, "-0", "1.00001", "1e3", " 1", "1 ", "+1", ".5", "5.", "NaN", "", True, None, 1.5, [], 10**14]
)
def test_other_values_are_no_amounts(value: object) -> None:
    with pytest.raises(ValueError, match="amount"):
        exact_money(value)


@pytest.mark.parametrize("text", ["1E+999999999", "1E-999999999", "Infinity", "NaN", "sNaN", "-0.0"])
def test_extreme_json_numbers_are_refused_without_writing_them_out(text: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        exact_money(Decimal(text))


@pytest.mark.parametrize(
    "value",
    [
        "0190C2A5-7E1E-7C3B-9D4F-2F6A1F0B8C11",
        "0190c2a57e1e7c3b9d4f2f6a1f0b8c11",
        "{0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11}",
        "urn:uuid:0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
        "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11\n",
        "",
        7,
        None,
    ],
)
def test_only_the_canonical_form_is_an_id(value: object) -> None:
    with pytest.raises(ValueError, match="UUID"):
        canonical_uuid(value)


def nested(inner: object, depth: int) -> object:
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "data",
    [
        {"note": "a@b"},
        {"a@b.example": 1},
        {"deep": nested({"x": ["y", "write to a@b.example please"]}, 10_000)},
        {"reason": "mailto:a@b"},
    ],
)
def test_an_email_is_found_wherever_it_stands(data: object) -> None:
    with pytest.raises(ValidationError) as refused:
        OrderBody.model_validate(data)
    assert [error["type"] for error in refused.value.errors()] == ["personal_data"]


@pytest.mark.parametrize("text", ["@", "a @ b", "@home", "2 @"])
def test_a_lone_at_sign_is_no_email(text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        OrderBody.model_validate({"note": text})
    assert [error["type"] for error in refused.value.errors()] == ["extra_forbidden"]


def test_the_same_order_has_one_canonical_form_whatever_the_spelling() -> None:
    turned = {name: ORDER[name] for name in reversed(ORDER)}
    one, other = PlaceOrder.model_validate(ORDER), PlaceOrder.model_validate(turned)
    assert one.model_dump_json() == other.model_dump_json()


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x1f", "\x7f", "\n", " "])
@pytest.mark.parametrize("place", ["{}ada@post.example", "ada@post{}.example", "ada@post.example{}"])
def test_an_address_has_no_character_that_a_database_or_a_mail_refuses(character: str, place: str) -> None:
    entry = {"name": "Ada", "email": place.format(character), "locale": "en"}
    with pytest.raises(ValidationError, match="email"):
        CustomerEntry.model_validate(entry)
    CustomerEntry.model_validate(entry | {"email": place.format("")})
