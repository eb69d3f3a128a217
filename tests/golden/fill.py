"""Bring the golden files up to the lock and the models; bytes that stand there are never changed.

    python tests/golden/fill.py

A new schema version gets a file with the cases of its former version, expected events get the defaults of
fields that are new in the model, and cases without bytes get theirs. Read the difference and commit it: from
then on these bytes must be readable for ever. A case is an event and why it is there; add your own without `hex`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.catalog import Catalog
from schemas.events import EVENTS

FOLDER = Path(__file__).parent


def filled(case: dict[str, Any], schema_id: int, type_name: str) -> dict[str, Any]:
    event = EVENTS[type_name].model_validate_json(json.dumps(case["event"]))
    whole = event.model_dump(mode="json")
    return {
        **case,
        "event": whole if only_adds(case["event"], whole) else case["event"],
        "hex": case.get("hex") or codec.encode_as(event, schema_id).hex(),
    }


def only_adds(old: Any, new: Any) -> bool:
    """Say whether the new value has all that the old one has, unchanged."""
    if isinstance(old, dict):
        return all(name in new and only_adds(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(only_adds, old, new))
    return bool(old == new)


def main() -> None:
    former: dict[str, list[dict[str, Any]]] = {}
    for entry in Catalog.load().entries:
        path = FOLDER / Path(entry.file).with_suffix(".json").name
        was = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not was and entry.type_name not in former:
            sys.exit(f"{path.name} is missing: the first version of a type needs a case written by hand")
        cases = was.get("cases") or [
            {name: value for name, value in case.items() if name != "hex"} for case in former[entry.type_name]
        ]
        now: dict[str, Any] = {
            "schema_id": entry.id,
            "type": entry.type_name,
            "cases": [filled(case, entry.id, entry.type_name) for case in cases],
        }
        former[entry.type_name] = now["cases"]
        if now != was:
            path.write_text(json.dumps(now, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            sys.stdout.write(f"{path.name}: {len(cases)} cases\n")


if __name__ == "__main__":
    main()
