import sys
from pathlib import Path

import pytest

from orderflow.ops.local.activate import activation


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a virtual environment in the working folder, its commands not on the path."""
    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").touch()
    (binaries / "orderflow").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / ".venv"


def test_a_shell_that_lacks_the_command_is_told_how_to_find_it(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert activation() == "source .venv/bin/activate"

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert activation() == f"source {environment}/bin/activate"


def test_a_shell_that_has_the_command_is_told_nothing(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(environment / "bin"))
    assert activation() is None


def test_a_python_without_such_a_file_tells_nothing(environment: Path) -> None:
    (environment / "bin/activate").unlink()
    assert activation() is None
