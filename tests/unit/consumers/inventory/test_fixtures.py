"""Files of stock levels."""

from pathlib import Path

import pytest

from consumers.inventory.fixtures import read
from orderflow.core.errors import OrderflowError


def test_json_and_csv_say_the_same(tmp_path: Path) -> None:
    as_json, as_csv = tmp_path / "stock.json", tmp_path / "stock.csv"
    as_json.write_text('[{"sku": "TEA-100", "on_hand": 40}, {"sku": "CUP-1", "on_hand": 0}]')
    as_csv.write_text("\ufeffsku,on_hand\nTEA-100,40\nCUP-1,0\n", encoding="utf-8")

    assert read(as_json) == read(as_csv) == {"TEA-100": 40, "CUP-1": 0}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "[", "no JSON"),
        ("a.json", '{"sku": "A", "on_hand": 1}', "list of objects"),
        ("a.json", '[{"sku": "A", "on_hand": -1}]', "entry 1: on_hand"),
        ("a.json", '[{"sku": "A", "on_hand": 1}, {"sku": "A", "on_hand": 2}]', "entry 2: A stands in the file twice"),
        ("a.json", '[{"sku": "A", "on_hand": 1, "colour": "red"}]', "colour"),
        ("a.json", '[{"sku": "A", "on_hand": 9223372036854775808}]', "entry 1: on_hand"),
        ("a.json", "[]", "names no article"),
        ("a.csv", "sku,on_hand\nA,many\n", "entry 1: on_hand"),
        ("a.csv", "sku,on_hand\nA\n", "entry 1: on_hand"),
        ("a.csv", "article,pieces\nA,1\n", "each needs `sku` and `on_hand`"),
        ("a.csv", "", "names no article"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(OrderflowError, match=said):
        read(path)


def test_a_missing_file_and_one_that_is_no_text_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")

    for path in (tmp_path / "nowhere.json", tmp_path / "binary.csv"):
        with pytest.raises(OrderflowError, match="cannot be read"):
            read(path)
