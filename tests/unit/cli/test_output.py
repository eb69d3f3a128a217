"""Tables for people, and what is left of them in a pipe."""

import io
import sys

import pytest

from orderflow.cli.output import print_table

NAME = "ORDERFLOW_A_SETTING__WITH_A_LONG_NAME"


class Terminal(io.StringIO):
    """A screen that can be read."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_long_cells_are_folded_but_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("setting", "value", "from"), [(NAME, "v" * 100, "environment")])

    lines = terminal.getvalue().splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith(f"{NAME} ")


def test_in_a_pipe_nothing_is_folded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("setting", "value", "from"), [(NAME, "v" * 300, "environment")])

    assert capsys.readouterr().out.splitlines()[1:] == [f"{NAME}  {'v' * 300}  environment"]


def test_numbers_stand_at_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("article", "on hand"), [("TEA", "7"), ("POT", "1,200")], numbers=("on hand",))

    assert capsys.readouterr().out.splitlines() == [
        "article  on hand",
        "TEA            7",
        "POT        1,200",
    ]
