import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from orderflow.core.rootcheck import ROOT_PACKAGES, foreign_root_packages

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ROOT_PACKAGES)
def test_each_root_package_resolves_inside_the_project(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve() == PROJECT / name / "__init__.py"


def test_every_folder_with_python_packages_is_guarded() -> None:
    assert {path.parent.name for path in PROJECT.glob("*/__init__.py")} == set(ROOT_PACKAGES)


def import_orderflow(foreign: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-c", "import orderflow"]
    return subprocess.run(command, env={"PYTHONPATH": str(foreign)}, capture_output=True, text=True, check=False)


def test_nothing_foreign_in_the_way_is_no_error(tmp_path: Path) -> None:
    assert foreign_root_packages() == {}
    assert import_orderflow(tmp_path).returncode == 0


@pytest.mark.parametrize("file", ["retry/__init__.py", "retry.py", "schemas/__init__.py"])
def test_a_foreign_package_of_the_same_name_is_refused_before_it_is_imported(tmp_path: Path, file: str) -> None:
    foreign = tmp_path / file
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("print('the foreign package ran')", encoding="utf-8")

    refused = import_orderflow(tmp_path)

    assert refused.returncode == 1
    name = Path(file).parts[0].removesuffix(".py")
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: these packages are not orderflow's own: {name} (")
    assert str(tmp_path) in last
    assert "pip uninstall" in last
    assert "the foreign package ran" not in refused.stdout
