"""The fenced blocks of the documents, and where each one is run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from tests.e2e.docs.reader import PROJECT, Reader, shows

RUN_HERE = ("README.md", "CONTRIBUTING.md", "schemas/README.md", "consumers/runtime/README.md")
"""The documents that a reader follows step by step."""

NOT_RUN = {
    ("README.md", "one transaction "): "a picture",
    ("ARCHITECTURE.md", "one transaction "): "a picture",
    ("CONTRIBUTING.md", "orderflow.cli > "): "a rule; `make check` enforces it",
}
"""Blocks that are no steps, by document and how they begin, with the reason."""

RUN_ELSEWHERE = {
    ("README.md", "make demo "): ("tests/e2e/test_demo.py", ".ci/run"),
    ("README.md", "What became of the odd ones"): ("tests/e2e/test_demo.py",),
    ("README.md", "printf 'POSTGRES_PASSWORD"): ("tests/e2e/docs/test_docker_blocks.py",),
    ("docs/api.md", "ORDERFLOW_API__PORT="): ("tests/integration/producers/test_api_process.py",),
    ("CONTRIBUTING.md", "make demo "): ("tests/e2e/test_demo.py", ".ci/run"),
}
"""Blocks that are whole suites or need more than this machine has, and the files that run them."""

Key = tuple[str, str]
_READS = re.compile(r"orderflow (?:(?:mail|stock|groups|outbox) (?:ls|show)|audit verify)\b.*")
_TABLE = re.compile(r"^\| you want to see \| command \|\n\|.*\n((?:\|.*\n)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, or the commands of a table. `screen` is what the document shows as its output."""

    document: str
    language: str
    source: str
    screen: str | None = None

    @property
    def excused(self) -> Key | None:
        """Its entry in the tables above."""
        for key in (*NOT_RUN, *RUN_ELSEWHERE):
            if key[0] == self.document and self.source.lstrip().startswith(key[1]):
                return key
        return None


def parse(name: str) -> list[Example]:
    """Return the blocks of a document in its order; evaluating one lets `namespace["reader"]` run it."""
    document = Sybil([_fenced, _commands]).parse(PROJECT / name)
    examples = list(document.examples())
    for example, following in zip_longest(examples, examples[1:]):
        shown = following is not None and following.parsed[0] == "text"
        language, source = example.parsed
        block = Block(name, language, source, following.parsed[1] if following is not None and shown else None)
        example.region.parsed = example.parsed = block
    return examples


def _fenced(document: Document) -> Iterable[Region]:
    for region in RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))(document):
        found = region.lexemes or {}
        yield Region(region.start, region.end, (found["language"].strip(), str(found["source"])), _run)


def _commands(document: Document) -> Iterable[Region]:
    for table in _TABLE.finditer(document.text):
        commands = re.findall(r"`([^`]+)`", table[1])
        yield Region(table.start(), table.end(), ("sh", "".join(f"{command}\n" for command in commands)), _run)


def _run(example: Example) -> str | None:
    block: Block = example.parsed
    reader: Reader = example.namespace["reader"]
    if block.excused:
        return None
    match block.language:
        case "sh" if all(_READS.fullmatch(line) for line in block.source.splitlines()):
            told = reader.look(block.source, block.screen)
        case "sh":
            interrupted = "# Ctrl-C" in block.source
            told = reader.run(block.source, interrupt_at=block.screen if interrupted else None)
        case "diff":
            reader.patch(block.source)
            return None
        case "python":
            reader.write(block.source.splitlines()[0].removeprefix("# "), block.source)
            return None
        case "text" if "told" in example.namespace:
            told = example.namespace["told"]
            return None if shows(told, block.source) else f"this was shown instead:\n{told}"
        case _:
            return f"nobody knows how to run a block of {block.language or 'no language'}"
    example.namespace["told"] = told
    return None


def documents() -> list[str]:
    """Return every Markdown document of the project."""
    folders = ("docs", "schemas", "consumers", "producers", "retry", "orderflow", "tests", "benchmarks")
    found = [*PROJECT.glob("*.md"), *(path for folder in folders for path in (PROJECT / folder).rglob("*.md"))]
    return sorted(str(path.relative_to(PROJECT)) for path in found)


def exists(path: str) -> bool:
    """Say whether the project has a file of that name."""
    return (PROJECT / Path(path)).is_file()
