"""Every block of the documents is run in their order, in a copy of the project; their screens are compared.

The README runs `make up`: the only test on the fixed ports.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Example

from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.up import down
from orderflow.ops.stack.layout import Ports, is_free
from orderflow.ops.stack.owner import owner_of
from orderflow.ops.stack.process import kill_recorded
from tests.e2e.docs import blocks, commands
from tests.e2e.docs.reader import PROJECT, Reader, copy_project, shows

# All in one process: a start of its own for each would cost a second each.
EACH_AS_JSON = f"""python - <<'END'
import json
from typer.testing import CliRunner
from orderflow.cli import app
answers = {{words: CliRunner().invoke(app, [*words.split(), "--json"]) for words in {commands.reading()}}}
print(json.dumps({{words: (answer.exit_code, answer.stdout) for words, answer in answers.items()}}))
END
"""


def run(examples: list[Example], reader: Reader) -> None:
    for example in examples:
        example.namespace["reader"] = reader
        example.evaluate()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "orderflow"
    copy_project(folder)
    yield folder
    if (folder / ".orderflow").exists():
        down(folder / ".orderflow", wipe=True)
    kill_recorded(folder)


@pytest.fixture
def free_fixed_ports() -> None:
    stack, roles = Ports.fixed(), RolePorts.fixed()
    for port in (
        *(*stack.kafka, *stack.controllers, stack.redis, stack.postgres, stack.smtp),
        *(roles.api, roles.relay, *roles.workers.values()),
    ):
        if not is_free(port):
            told = f"port {port}, which the README uses, is taken by {owner_of(port) or 'another process'}"
            pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)


@pytest.mark.long
@pytest.mark.usefixtures("local_stack", "free_fixed_ports")
@pytest.mark.timeout(900)
def test_the_readme_does_what_it_says(project: Path) -> None:
    with Reader(project, activated=False) as reader:
        steps = blocks.parse("README.md")
        end = next(number for number, step in enumerate(steps) if step.parsed.source.startswith("make down"))
        run(steps[:end], reader)
        for command, (code, told) in json.loads(reader.run(EACH_AS_JSON)).items():
            assert code == 0, f"{command} --json ended with {code}: {told}"
            json.loads(told)
        run(steps[end:], reader)
    assert not (project / ".orderflow").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in blocks.RUN_HERE if name != "README.md"])
def test_the_other_documents_do_what_they_say(project: Path, name: str) -> None:
    with Reader(project, activated=True) as reader:
        run(blocks.parse(name), reader)


def test_the_table_of_commands_is_whole(project: Path) -> None:
    assert commands.listed("orderflow") == {*commands.existing()}
    with Reader(project, activated=True) as reader:
        targets = {line.split()[1] for line in reader.run("make help\n").splitlines()}
        assert commands.listed("make") == targets - {"help"}
        for target in targets:
            reader.run(f"make --dry-run {target}\n")


def test_every_block_of_every_document_is_run_or_says_where() -> None:
    examples = [example for name in blocks.documents() for example in blocks.parse(name)]
    left = [
        f"{example.path}:{example.line}"
        for example in examples
        if not example.parsed.excused and example.parsed.document not in blocks.RUN_HERE
    ]
    assert left == []
    assert {example.parsed.excused for example in examples} - {None} == {*blocks.NOT_RUN, *blocks.RUN_ELSEWHERE}
    assert all(map(blocks.exists, {path for paths in blocks.RUN_ELSEWHERE.values() for path in paths}))


@pytest.mark.parametrize("name", blocks.documents())
def test_no_block_hides_as_an_indented_one(name: str) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", (PROJECT / name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^\n {4,}\S", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("told", "screen", "right"),
    [
        ("id 5a1c2f0e-7d5b-4f0e-9a56-0b1f6c1d2e3f\r\n", "id 01a2295f-10d3-7568-8f8d-9676d672ca7a", True),
        ("at 2026-11-29T22:13:46+00:00  \n", "at 2025-01-01T00:00:00Z", True),
        ("one\ntwo\nthree\n", "one\n…\nthree", True),
        ("one\nthree\n", "one\n…\nthree", True),
        ("one  more words\n", "one  …", True),
        ("one\ntwo\n", "one", False),
        ("one\ntwo\n", "two\n…", False),
        ("lag 3\n", "lag 0", False),
    ],
)
def test_a_screen_is_compared_word_by_word(told: str, screen: str, right: bool) -> None:  # noqa: FBT001 - a case
    assert shows(told, screen) is right
