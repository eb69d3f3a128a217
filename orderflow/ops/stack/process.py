"""One background process: spawn it, tell whether it lives, read the end of its log, stop it.

A process is known by its pid *and* its start time, both written to `process.json`, so that a
later command finds it and a pid that the system gave to somebody else is never signalled.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from orderflow.core.errors import OrderflowError

RECORD = "process.json"
# Start times are derived from the boot time, which moves when the machine's clock is set.
START_TIME_TOLERANCE_SECONDS = 2.0


class PartFailed(OrderflowError):
    """Raised when a part of the stack dies, or gives no answer in time; carries the end of its log."""


@dataclass(frozen=True)
class Command:
    """What to run: the arguments, its whole environment, where, and (as root) as whom."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    user: str | None = None
    group: int | None = None


class Daemon:
    """A process that outlives this one unless it is stopped; its log and its record lie in `folder`."""

    def __init__(self, name: str, folder: Path, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        self.name = name
        self.log = folder / "log"
        self._record = folder / RECORD
        self._stop_signal = stop_signal
        self._child: subprocess.Popen[bytes] | None = None

    def spawn(self, command: Command) -> None:
        """Start it in a session of its own and record it. Raises `PartFailed` when it cannot be run at all."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            offset = log.tell()
            try:
                self._child = subprocess.Popen(  # noqa: S603 - the arguments are ours, no shell
                    list(command.argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(command.env),
                    cwd=command.cwd,
                    user=command.user,
                    group=command.group,
                    extra_groups=None if command.user is None else [],
                    start_new_session=True,
                )
            except OSError as error:
                message = f"{self.name} cannot be run: {error.strerror or error} ({command.argv[0]})"
                raise PartFailed(message) from None
        # Our child stays known, as a zombie at least, until we wait for it.
        started = psutil.Process(self._child.pid).create_time()
        write_json(self._record, {"pid": self._child.pid, "started": started, "log_offset": offset})

    @property
    def process(self) -> psutil.Process | None:
        """The live process, or None; a zombie counts as dead and is reaped if it is our child."""
        record = self._read_record()
        found = None if record is None else live_process(record["pid"], record["started"])
        if found is None and self._child is not None:
            self._child.poll()  # after the look: it may have become a zombie since an earlier poll
        return found

    @property
    def running(self) -> bool:
        """Whether the process lives (a stopped one, as by SIGSTOP, does)."""
        return self.process is not None

    @property
    def died(self) -> bool:
        """Whether it ended without having been stopped by us."""
        return self._read_record() is not None and not self.running

    @property
    def pid(self) -> int | None:
        """The process id while it lives."""
        process = self.process
        return None if process is None else process.pid

    def stop(self, grace: float = 10.0) -> None:
        """Ask it to end, kill it and its children after `grace` seconds, reap it, forget it. No error if it is dead."""
        self._end(self._stop_signal, grace)

    def kill(self) -> None:
        """SIGKILL it and its children, wait until they are gone, forget it."""
        self._end(signal.SIGKILL, 5.0)

    def pause(self) -> None:
        """SIGSTOP it and its children: it stays connected and answers nothing."""
        stopped: set[int] = set()
        # Again until there is nobody new: one may have been born while the others were listed.
        while left := [process for process in self._family() if process.pid not in stopped]:
            for process in left:
                _signal(process, signal.SIGSTOP)
                stopped.add(process.pid)

    def resume(self) -> None:
        """SIGCONT what `pause` stopped."""
        for process in self._family():
            # One that ends as soon as its parent goes on must not leave the others stopped.
            _signal(process, signal.SIGCONT)

    def log_end(self, lines: int = 12) -> str:
        """Return the last lines that it wrote since its last start."""
        record = self._read_record()
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(record["log_offset"] if record else 0, size - 65_536))
                text = log.read().decode(errors="replace")
        except OSError:
            return "(it wrote no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(it wrote nothing)"

    def failed(self, what: str) -> PartFailed:
        """Return the error that says `what` happened, with the end of the log and where the rest is."""
        end = "\n".join(f"    {line}" for line in self.log_end().splitlines())
        return PartFailed(f"{self.name} {what}; the end of {self.log}:\n{end}")

    def _end(self, sent: signal.Signals, grace: float) -> None:
        family = self._family()
        if family:
            # A stopped process would see the signal only after SIGCONT.
            for process in family:
                _signal(process, signal.SIGCONT)
            _signal(family[0], sent)
            if sent is signal.SIGKILL:
                for process in family[1:]:
                    _signal(process, sent)
            _, alive = psutil.wait_procs(family, timeout=grace)
            for process in alive:
                _signal(process, signal.SIGKILL)
            psutil.wait_procs(alive, timeout=5.0)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(5.0)
            self._child = None
        self._record.unlink(missing_ok=True)

    def _family(self) -> list[psutil.Process]:
        process = self.process
        if process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process, *process.children(recursive=True)]
        return []

    def _read_record(self) -> dict[str, Any] | None:
        return read_json(self._record)


def live_process(pid: int, started: float) -> psutil.Process | None:
    """Return the process with this pid if it is the one that began at `started` (epoch seconds) and is no zombie."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < START_TIME_TOLERANCE_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def kill_recorded(folder: Path) -> None:
    """SIGKILL every process recorded under `folder`, whatever part it is, and its children."""
    for record in folder.rglob(RECORD):
        Daemon(record.parent.name, record.parent).kill()


def run_to_end(command: Command) -> str:
    """Run a short command to its end and return what it wrote. Raises `PartFailed` with that text when it fails."""
    done = subprocess.run(  # noqa: S603 - the arguments are ours, no shell
        list(command.argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(command.env),
        cwd=command.cwd,
        user=command.user,
        group=command.group,
        extra_groups=None if command.user is None else [],
        text=True,
        check=False,
    )
    if done.returncode != 0:
        end = "\n".join(f"    {line}" for line in done.stdout.splitlines()[-12:])
        message = f"{Path(command.argv[0]).name} failed with exit code {done.returncode}:\n{end}"
        raise PartFailed(message)
    return done.stdout


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a small private file so that a reader sees the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    half.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a file of `write_json`, or None when there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return content


def _signal(process: psutil.Process, sent: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(sent)
