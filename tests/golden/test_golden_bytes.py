"""The bytes of every schema version, as they stand on topics for ever."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas import codec
from schemas.catalog import Catalog
from schemas.events import EVENTS, Event

FOLDER = Path(__file__).parent
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
CASES = [
    pytest.param(golden["schema_id"], golden["type"], case, id=f"{stem}: {case['why']}")
    for stem, golden in FILES.items()
    for case in golden["cases"]
]


def _event(type_name: str, case: dict[str, Any]) -> Event:
    return EVENTS[type_name].model_validate_json(json.dumps(case["event"]))


def test_every_locked_schema_has_golden_bytes() -> None:
    locked = {Path(entry.file).stem: (entry.id, entry.type_name) for entry in Catalog.load().entries}
    assert {stem: (golden["schema_id"], golden["type"]) for stem, golden in FILES.items()} == locked


@pytest.mark.parametrize(("schema_id", "type_name", "case"), CASES)
def test_golden_bytes_decode_to_the_expected_event(schema_id: int, type_name: str, case: dict[str, Any]) -> None:
    value = bytes.fromhex(case["hex"])
    event = codec.decode(value)
    assert codec.frame_id(value) == schema_id
    assert event == _event(type_name, case)
    assert event.model_dump(mode="json") == case["event"]


@pytest.mark.parametrize(("schema_id", "type_name", "case"), CASES)
def test_encoding_again_gives_the_golden_bytes(schema_id: int, type_name: str, case: dict[str, Any]) -> None:
    event = _event(type_name, case)
    assert codec.encode_as(event, schema_id).hex() == case["hex"]
    if Catalog.load().newest(type_name).id == schema_id:
        assert codec.encode(event).hex() == case["hex"]
