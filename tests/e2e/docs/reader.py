"""A reader of the documents: a copy of the project, and a shell in it that does what a block says."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

from orderflow.core import clock

PROJECT = Path(__file__).resolve().parents[3]
STEP_SECONDS = 300.0
LOOK_AGAIN_SECONDS = 120.0

_NOT_THE_PROJECT = {".git", ".venv", ".orderflow", ".hypothesis", "__pycache__", "dist"}
# What this run of pytest, or the make that started it, has set for itself.
_OURS = re.compile(r"ORDERFLOW_|PYTEST|PYTHON|VIRTUAL_ENV|VENV$|MAKE|MFLAGS")
# What differs between two runs of the same commands.
_VARIES = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "TIME"),
    # What looks the same.
    (re.compile("[\u00a0\u202f]"), " "),
    (re.compile(r"\r$", re.MULTILINE), ""),
    (re.compile(r" +$", re.MULTILINE), ""),
]


def shows(told: str, screen: str) -> bool:
    """Say whether that is what the screen of a document shows: `…` is anything, ids and times may differ."""
    told, screen = _plain(told), _plain(screen)
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in screen.splitlines()
    ]
    return re.fullmatch("".join(lines), told) is not None


def _plain(text: str) -> str:
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return text.strip("\n") + "\n"


def copy_project(folder: Path) -> None:
    """Copy what git would, and let `.venv` there be the environment of this run."""
    for path in _project_files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / path, target)
    environment = folder / ".venv"
    environment.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (environment / entry.name).symlink_to(entry)
    # The stamps that `make` looks at: what the locks name is installed already.
    for stamp in (".product", ".dev"):
        (environment / stamp).touch()


def _project_files() -> list[Path]:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        told = subprocess.run(listing, cwd=PROJECT, capture_output=True, check=True).stdout
        found = [Path(name) for name in told.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        everything = (path.relative_to(PROJECT) for path in PROJECT.rglob("*"))
        found = [path for path in everything if not _NOT_THE_PROJECT & {*path.parts}]
    return [path for path in found if (PROJECT / path).is_file()]


class Failed(Exception):
    """A step that did not do what its document says."""


class Reader:
    """One bash session in a copy of the project; what a block defines holds for the blocks after it."""

    def __init__(self, project: Path, *, activated: bool, step_seconds: float = STEP_SECONDS) -> None:
        self._project = project
        self._step_seconds = step_seconds
        self._files = project.with_name(f"{project.name}-steps")
        self._files.mkdir()
        self._steps = 0
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=project,
            env=_environment(project, activated=activated),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._type("set -o pipefail")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in psutil.Process(self._shell.pid).children(recursive=True) if self._shell.poll() is None else ():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._shell.kill()
        self._shell.communicate()

    def run(self, source: str, *, interrupt_at: str | None = None) -> str:
        """Run a block as it would be typed in, stopping at the first error; return what it printed.

        `interrupt_at`: press Ctrl-C when it has printed that screen. Raises `Failed` with all that was printed.
        """
        return self._run(source, "{{ set -e; . {0}; set +e; }}", interrupt_at)

    def look(self, source: str, screen: str | None) -> str:
        """Run a block that only reads until it succeeds and prints the screen, as somebody looks again a moment later.

        Raises `Failed` with the last answer.
        """
        until = clock.monotonic() + LOOK_AGAIN_SECONDS
        while True:
            with contextlib.suppress(Failed) if clock.monotonic() < until else contextlib.nullcontext():
                told = self._run(source, "( set -e; . {0}; )", None)
                if screen is None or shows(told, screen) or clock.monotonic() > until:
                    return told

    def patch(self, source: str) -> None:
        """Apply a patch. Raises `Failed` when it does not fit."""
        # What the documents name; `patch` takes the same where git is not installed.
        tool = "git apply" if shutil.which("git") else "patch -p1"
        self.run(f"{tool} <<'END_OF_PATCH'\n{source}END_OF_PATCH\n")

    def write(self, name: str, source: str) -> None:
        """Write a file."""
        (self._project / name).write_text(source, encoding="utf-8")

    def _run(self, source: str, how: str, interrupt_at: str | None) -> str:
        self._steps += 1
        script, out, err, end = (self._files / f"{self._steps}.{name}" for name in ("sh", "out", "err", "end"))
        script.write_text(source, encoding="utf-8")
        self._type(f"{how.format(script)} </dev/null >{out} 2>{err}; echo $? >{end}.new; mv {end}.new {end}")

        def told() -> str:
            return out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""

        if interrupt_at is not None:
            self._wait(lambda: end.exists() or shows(told(), interrupt_at))
            for process in psutil.Process(self._shell.pid).children():
                process.send_signal(2)
        self._wait(end.exists)
        if not end.exists() or end.read_text() != "0\n":
            raise Failed(f"{source}\n{told()}\n{err.read_text(encoding='utf-8')}")
        return told()

    def _type(self, line: str) -> None:
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; the wait for its answer tells
            self._shell.stdin.write(f"{line}\n")
            self._shell.stdin.flush()

    def _wait(self, condition: Callable[[], bool]) -> None:
        until = clock.monotonic() + self._step_seconds
        pause = threading.Event()
        while not condition() and self._shell.poll() is None and clock.monotonic() < until:
            pause.wait(0.02)


def _environment(project: Path, *, activated: bool) -> Mapping[str, str]:
    environ = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    path = [entry for entry in environ["PATH"].split(os.pathsep) if not (Path(entry) / "orderflow").exists()]
    if activated:
        path.insert(0, str(project / ".venv/bin"))
    return environ | {
        "PATH": os.pathsep.join(path),
        # The copy's code, although the environment has the project installed.
        "PYTHONPATH": str(project),
        # As on a terminal.
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "120",
        # Should `make` find something to install after all: not into the environment of this run.
        "PIP_DRY_RUN": "1",
        "GIT_CEILING_DIRECTORIES": str(project.parent),
    }
