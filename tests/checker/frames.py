"""Reads the values of the source topic by the schema files alone: none of the product's code has a say."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro

from tests.checker.facts import Event

SCHEMAS = Path(__file__).parents[2] / "schemas"


class Frames:
    """Knows the schema of each id."""

    def __init__(self, folder: Path = SCHEMAS) -> None:
        self._schemas: dict[int, Any] = {}
        for entry in json.loads((folder / "registry.json").read_text(encoding="utf-8"))["schemas"]:
            text = (folder / entry["file"]).read_text(encoding="utf-8")
            self._schemas[int(entry["id"])] = fastavro.parse_schema(json.loads(text))

    def read(self, value: bytes | None) -> Event | None:
        """Return the event, None for what holds none: no frame, an unknown schema, too few bytes or too many."""
        if value is None or len(value) < 5 or value[0] != 0:
            return None
        schema = self._schemas.get(int.from_bytes(value[1:5], "big"))
        if schema is None:
            return None
        body = io.BytesIO(value[5:])
        try:
            found: Any = fastavro.schemaless_reader(body, schema, None)
        except Exception:  # noqa: BLE001 - whatever a broken value raises, it holds no event
            return None
        if body.read(1):
            return None
        pieces: Counter[str] = Counter()
        for line in found.get("lines", ()):
            pieces[line["sku"]] += line["quantity"]
        return Event(
            str(found["event_id"]), schema["name"], str(found["order_id"]), found["order_version"], dict(pieces)
        )
