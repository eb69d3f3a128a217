"""Workers that are processes of their own: they can be stopped, frozen and killed, and their runs are noted."""

import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pydantic import SecretStr

from orderflow.core.settings import Settings
from tests.outbox_flow import wait_until

Process = subprocess.Popen[bytes]


class Note(NamedTuple):
    """One line of the notes."""

    what: str
    pid: int
    event_id: str


class Crew:
    """Processes of `tests.noted_group` with these settings; what still runs at the end is killed."""

    def __init__(self, settings: Settings, name: str, folder: Path, *, handler_seconds: float) -> None:
        self._folder = folder
        self._notes = folder / "notes"
        self._notes.touch()
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            # The code beside these tests, also in a copy of the tree.
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "NOTED_GROUP": name,
            "NOTED_FILE": str(self._notes),
            "NOTED_SECONDS": str(handler_seconds),
            **variables(settings),
        }
        self.all: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.all:
            process.kill()
        for process in self.all:
            process.wait(10)

    def start(self) -> Process:
        """Start one more worker; it is at work when its first note says so."""
        with (self._folder / "crew.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "orderflow", "worker", "tests.noted_group:group"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self.all.append(process)
        return process

    def stop(self, process: Process, seconds: float = 60.0) -> None:
        """Stop a worker as an operator does; it must leave in good order."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(seconds) == 0, self.log()

    def notes(self) -> list[Note]:
        """Return all notes, in the order in which they were written."""
        lines = self._notes.read_text(encoding="utf-8").splitlines()
        return [Note(what, int(pid), event_id) for what, pid, event_id in map(str.split, lines)]

    def runs(self) -> Counter[str]:
        """Return how often each event was begun."""
        return Counter(note.event_id for note in self.notes() if note.what == "begin")

    def run_together(self) -> list[str]:
        """Return the events that were begun while another run of them had not ended."""
        running: dict[str, int] = defaultdict(int)
        together = []
        for note in self.notes():
            if note.what == "begin" and running[note.event_id]:
                together.append(note.event_id)
            running[note.event_id] += 1 if note.what == "begin" else -1
        return together

    def wait_at_work(self, process: Process, seconds: float = 60.0) -> None:
        """Wait until this process has begun to handle something."""
        wait_until(lambda: any(note.pid == process.pid for note in self.notes()), seconds)

    def log(self) -> str:
        """Return what all of them have said."""
        return (self._folder / "crew.log").read_text(encoding="utf-8")


def variables(settings: Settings) -> dict[str, str]:
    """Return the variables that differ from the defaults, of the roles that a worker of no database needs."""
    return {
        f"ORDERFLOW_{role}__{name}".upper(): _text(value)
        for role in ("kafka", "redis", "worker")
        for name, value in getattr(settings, role).model_dump(exclude_defaults=True).items()
    }


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
