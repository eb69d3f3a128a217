"""Golden bytes are read alike by the compiled fastavro, by its Python twin, and by Apache's own library.

The same files prove another fastavro: install it and run this folder and `tests/golden` again.
"""

import io
import json
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest
from fastavro import _read_py

from schemas import codec
from schemas.catalog import Catalog

CASES = [
    pytest.param(bytes.fromhex(case["hex"]), id=f"{path.stem}: {case['why']}")
    for path in sorted((Path(__file__).parents[1] / "golden").glob("*.json"))
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]
]


def _document(value: bytes) -> Any:
    entry = Catalog.load().by_id(codec.frame_id(value) or 0)
    assert entry is not None
    return entry.document


def test_there_are_golden_bytes_of_every_version() -> None:
    found = {codec.frame_id(param.values[0]) for param in CASES}  # type: ignore[arg-type]
    assert found == {entry.id for entry in Catalog.load().entries}


@pytest.mark.parametrize("value", CASES)
def test_apaches_library_reads_the_same_event(value: bytes) -> None:
    reader = avro.io.DatumReader(avro.schema.parse(json.dumps(_document(value))))
    record = reader.read(avro.io.BinaryDecoder(io.BytesIO(value[5:])))
    event = codec.decode(value)
    # It leaves a uuid as text, which the model turns into one.
    assert type(event).model_validate(record) == event


@pytest.mark.parametrize("value", CASES)
def test_the_decoder_written_in_python_reads_the_same_record(value: bytes) -> None:
    schema = fastavro.parse_schema(_document(value), named_schemas={})
    assert _read_py.schemaless_reader(io.BytesIO(value[5:]), schema, None) == codec.raw_decode(value)


def test_the_compiled_decoder_is_the_one_in_use() -> None:
    """The Python twin takes over without a word where no wheel fits, at a tenth of the speed."""
    assert fastavro.schemaless_reader is not _read_py.schemaless_reader
