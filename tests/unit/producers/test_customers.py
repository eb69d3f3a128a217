import json

import pytest

from producers.customers import BadFile, parse

ADA = {
    "customer_id": "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
    "name": "Ada Example",
    "email": "ada@shop.example",
    "locale": "en",
}


def test_a_file_is_a_list_of_directory_entries_with_ids() -> None:
    ((customer_id, entry),) = parse(json.dumps([ADA]).encode())
    assert (str(customer_id), entry.email) == (ADA["customer_id"], "ada@shop.example")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "JSON"),
        (b"\xff", "JSON"),
        (json.dumps(ADA).encode(), "valid list"),
        (json.dumps([ADA, ADA | {"email": "ada-secret"}]).encode(), r"1\.email"),
        (json.dumps([ADA | {"phone": "1"}]).encode(), r"0\.phone"),
    ],
)
def test_a_wrong_file_names_the_place_and_not_what_stands_there(content: bytes, place: str) -> None:
    with pytest.raises(BadFile, match=place) as refused:
        parse(content)
    assert "secret" not in str(refused.value)
