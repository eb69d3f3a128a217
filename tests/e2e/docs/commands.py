"""The README's table of commands beside the commands that there are."""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from orderflow.cli import app
from tests.e2e.docs.reader import PROJECT

_READING = {"check", "config", "doctor", "ls", "status", "verify"}
_ROW = re.compile(r"^\| (`(?:make|orderflow) .*?`) \| ", re.MULTILINE)


def listed(program: str) -> set[str]:
    """Return what the table lists of `make` or `orderflow`, without arguments and options."""
    table = (PROJECT / "README.md").read_text(encoding="utf-8").partition("\n## Commands\n")[2]
    found: set[str] = set()
    for row in _ROW.findall(table):
        spans = [span for span in re.findall(r"`([^`]+)`", row) if not span.startswith("-")]
        if spans[0].split()[0] == program:
            spans[0] = spans[0].removeprefix(f"{program} ")
            found |= {each for span in spans for each in _expanded(span)}
    return found


def _expanded(span: str) -> Iterator[str]:
    words = [word for word in span.split() if not word.isupper() and not word.startswith("-")]
    yield from (" ".join([*words[:-1], last]) for last in words[-1].split("\\|"))


def existing() -> dict[str, list[Any]]:
    """Return the parameters of every `orderflow` command by its words."""
    found: dict[str, list[Any]] = {}

    def look(command: Any, words: tuple[str, ...]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            look(below, (*words, name))
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command.params

    look(get_command(app), ())
    return found


def reading() -> list[str]:
    """Return the commands that only read and need no argument."""
    return [
        words
        for words, parameters in existing().items()
        if words.split()[-1] in _READING and not any(parameter.required for parameter in parameters)
    ]
