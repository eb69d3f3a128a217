"""Reads a file of stock levels. Pure but for reading the file."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orderflow.core.errors import OrderflowError
from schemas.events import Code

BIGINT_MAX = 2**63 - 1


class _Level(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: Code
    on_hand: Annotated[int, Field(ge=0, le=BIGINT_MAX)]


def read(path: Path) -> Mapping[str, int]:
    """Return pieces on hand by article, from a `.json` file (a list of objects) or a `.csv` file with a header.

    Both have `sku` and `on_hand`. Raises `OrderflowError`, naming the entry, for a file that cannot be
    read, a wrong or missing value, an unknown field, and an article that stands in it twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OrderflowError(f"{path} cannot be read as UTF-8 text ({type(error).__name__})") from None
    return _levels(path, _json(path, text) if path.suffix.lower() == ".json" else csv.DictReader(io.StringIO(text)))


def _json(path: Path, text: str) -> Iterable[object]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise OrderflowError(f"{path} is no JSON: {error}") from None
    if not isinstance(entries, list):
        raise OrderflowError(f'{path} must be a list of objects such as {{"sku": "TEA-100", "on_hand": 40}}')
    return entries


def _levels(path: Path, entries: Iterable[object]) -> Mapping[str, int]:
    on_hand: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        try:
            level = _Level.model_validate(entry)
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            place = ".".join(map(str, found["loc"])) or "entry"
            raise OrderflowError(
                f"{path}, entry {number}: {place}: {found['msg'].lower()}; each needs `sku` and `on_hand`"
            ) from None
        if level.sku in on_hand:
            raise OrderflowError(f"{path}, entry {number}: {level.sku} stands in the file twice")
        on_hand[level.sku] = level.on_hand
    if not on_hand:
        raise OrderflowError(f"{path} names no article; give it a header line `sku,on_hand` and one line per article")
    return on_hand
