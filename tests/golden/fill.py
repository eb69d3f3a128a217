"""Write the bytes of golden cases that have none yet; bytes that stand there are never changed.

    python tests/golden/fill.py

A case is an event and why it is there. Run it once after adding a case or a file for a new schema
version, read the difference, and commit it: from then on these bytes must be readable for ever.
"""

import json
import sys
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.events import EVENTS

FOLDER = Path(__file__).parent


def encoded(case: dict[str, Any], schema_id: int, type_name: str) -> str:
    event = EVENTS[type_name].model_validate_json(json.dumps(case["event"]))
    return codec.encode_as(event, schema_id).hex()


def main() -> None:
    for path in sorted(FOLDER.glob("*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        missing = [case for case in golden["cases"] if "hex" not in case]
        for case in missing:
            case["hex"] = encoded(case, golden["schema_id"], golden["type"])
        if missing:
            path.write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            sys.stdout.write(f"{path.name}: {len(missing)} filled\n")


if __name__ == "__main__":
    main()
