"""What `down` says where nothing runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orderflow.cli import local, stack
from orderflow.ops.local import activate
from orderflow.ops.stack.layout import Layout, Ports

STATE = Path(".orderflow")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of a shop that ran and was stopped, as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORDERFLOW_STATE_DIR", raising=False)
    (STATE / "redis").mkdir(parents=True)
    Layout(Ports.fixed()).save(STATE)


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("down", [local.down, stack.down])
def test_to_wipe_what_does_not_run_says_so(down: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    down(wipe=True)

    told = capsys.readouterr().out
    assert told.startswith("Nothing ran")
    assert "was removed" in told
    assert not STATE.exists()


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("down", [local.down, stack.down])
def test_to_stop_what_does_not_run_says_so(down: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    down()

    assert capsys.readouterr().out.startswith("Nothing r")
    assert STATE.exists()


def test_where_nothing_ever_ran_nothing_is_said_to_be_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORDERFLOW_STATE_DIR", raising=False)
    monkeypatch.setattr(activate, "activation", lambda: None)
    local.down(wipe=True)
    stack.down(wipe=True)

    assert capsys.readouterr().out.splitlines() == [
        f"Nothing runs here, in {tmp_path}/.orderflow; `orderflow up` starts it.",
        "There is no stack in .orderflow.",
    ]


@pytest.mark.usefixtures("stopped")
def test_a_shell_that_does_not_find_the_command_is_told_how_it_would(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(activate, "activation", lambda: "source .venv/bin/activate")
    local.down()

    assert "; after `source .venv/bin/activate`, `orderflow up` starts it." in capsys.readouterr().out
