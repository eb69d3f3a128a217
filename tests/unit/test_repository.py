import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("requirements.lock", "requirements-dev.lock")


def pins(lock: str) -> dict[str, str]:
    return {canonicalize_name(name): pin for name, pin in PIN.findall((PROJECT / lock).read_text(encoding="utf-8"))}


def group(name: str) -> list[str]:
    entries: list[Any] = PYPROJECT["dependency-groups"][name]
    return [
        text for entry in entries for text in ([entry] if isinstance(entry, str) else group(entry["include-group"]))
    ]


PRODUCT = [
    *PYPROJECT["project"]["dependencies"],
    *PYPROJECT["project"]["optional-dependencies"]["local"],
    *group("build"),
]


@pytest.mark.parametrize(("lock", "wanted"), [(LOCKS[0], PRODUCT), (LOCKS[1], [*PRODUCT, *group("dev")])])
def test_what_pyproject_asks_for_is_pinned_in_its_range(lock: str, wanted: list[str]) -> None:
    pinned = pins(lock)

    for requirement in map(Requirement, wanted):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in {lock}: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} against {version}: make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash_and_no_host_is_named(lock: str) -> None:
    text = (PROJECT / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", text)

    assert len(entries) == len(pins(lock))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert not re.search(r"^\s*-(-index|-extra|-find|i |f )", text, re.MULTILINE)


def test_tests_run_the_versions_that_users_run() -> None:
    product, dev = map(pins, LOCKS)

    assert {name: dev.get(name) for name in product} == product


def test_make_help_lists_the_commands() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")

    listed = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)

    assert listed == ["help", "demo", "up", "down", "test", "faults", "chaos", "mutants", "check", "bench", "lock"]
