"""What the documents point at is there: files, sections, tests by their sentence, settings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orderflow.core.settings import Settings

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "schemas", "consumers", "producers", "retry", "orderflow", "tests", "benchmarks")
DOCUMENTS = sorted(
    str(path.relative_to(PROJECT))
    for path in (*PROJECT.glob("*.md"), *(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.md")))
)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
FAULT_FILES = sorted(path.name for path in (PROJECT / "tests/faults").glob("test_*.py"))
FAULTS = (PROJECT / "docs/faults.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", FAULTS, re.MULTILINE)


def links(document: str) -> Iterator[tuple[str, str]]:
    fence = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
    for words, target in LINK.findall(fence.sub("", (PROJECT / document).read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            yield words, target


def title_of(file: str) -> str:
    return re.sub(r"^test_(\d\d_)?", "", Path(file).stem).replace("_", " ")


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document: str) -> None:
    for _, target in links(document):
        name, _, section = target.partition("#")
        path = (PROJECT / document).parent / name if name else PROJECT / document
        assert path.exists(), target
        assert not section or section in anchors(path), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document: str) -> None:
    for words, target in links(document):
        if re.search(r"tests/.*/test_\w+\.py$", target):
            source = ((PROJECT / document).parent / target).read_text(encoding="utf-8")
            named = re.search(rf"^def test_{re.escape(words.replace(' ', '_'))}\(", source, re.MULTILINE)
            assert named or words == title_of(target), f"{target} has no test of the name {words!r}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_that_is_named_exists(document: str) -> None:
    for role, name in re.findall(r"ORDERFLOW_([A-Z]+)__([A-Z_]*[A-Z])", (PROJECT / document).read_text("utf-8")):
        model = Settings.model_fields[role.lower()].annotation
        assert name.lower() in getattr(model, "model_fields", {}), f"ORDERFLOW_{role}__{name}"


def test_every_promise_names_its_limit_its_code_and_its_tests() -> None:
    promises = (PROJECT / "docs/guarantees.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert [int(promise.partition(".")[0]) for promise in promises] == [*range(1, 11)]
    for promise in promises:
        limit, kept, shown = (promise.find(f"- **{words}**") for words in ("Ends where", "Kept by", "Shown by"))
        assert 0 < limit < kept < shown, promise
        assert LINK.search(promise[kept:shown]), promise
        assert "/tests/" in promise[shown:], promise


def test_the_faults_are_numbered_from_1_without_a_hole() -> None:
    assert [int(number) for number, *_ in ROWS] == [*range(1, len(ROWS) + 1)]


@pytest.mark.parametrize("file", FAULT_FILES)
def test_every_test_of_a_fault_is_linked_in_its_line_by_its_title(file: str) -> None:
    link = f"[{title_of(file)}](../tests/faults/{file})"
    number = re.match(r"test_(\d\d)_", file)
    if number is None:
        assert link in FAULTS
        return
    (proof,) = (proof for row, _, _, proof in ROWS if int(row) == int(number[1]))
    assert link in proof
    assert not proof.startswith(("in parts", "not proven")), file


def test_a_line_without_a_test_says_so() -> None:
    for number, _, _, proof in ROWS:
        assert (proof == "not proven yet") is not bool(LINK.search(proof)), number
