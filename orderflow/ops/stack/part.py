"""What every part of the stack has in common: start and be ready, stop, kill, pause, resume."""

import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from orderflow.core import clock, interrupt
from orderflow.ops.stack.process import Command, Daemon

# One that dies is noticed at once; only one that hangs is waited for so long. On a machine with ten times the
# work that it can do, Kafka took more than 60 s after a kill.
READY_SECONDS = 120.0
STOP_SECONDS = 10.0
_TICK_SECONDS = 0.02

# What a child may see of our environment: no ORDERFLOW_ secret, no proxy, nothing that changes how it runs.
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")


def plain_environment(**more: str) -> dict[str, str]:
    """Return the few variables that a server needs, and `more`."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"} | more


class Part(ABC):
    """One server on a loopback port with its own folder; starting it again finds its data again."""

    port_option: ClassVar[str]
    """The option of `orderflow stack up` that moves its port."""

    def __init__(self, name: str, folder: Path, *ports: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        self.name = name
        self.folder = folder
        self.ports = ports
        self.daemon = Daemon(name, folder, stop_signal)

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.ports[0]

    @abstractmethod
    def prepare(self) -> Command:
        """Make its folder, files and first data where they are missing; return what to run."""

    @abstractmethod
    def answer(self) -> str | None:
        """Ask it a real question: return what it says of itself (`PostgreSQL 18.6`), or None for no answer."""

    def start(self, ready_seconds: float = READY_SECONDS) -> None:
        """Start it unless it runs, and wait for a real answer. Raises `PartFailed`."""
        if not self.daemon.running:
            self.daemon.spawn(self.prepare())
        self.wait_ready(ready_seconds)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait for a real answer. Raises `PartFailed` at once when it dies, or after `seconds`."""
        wait_for_answer(self.daemon, self.answer, seconds)

    def stop(self, grace: float = STOP_SECONDS) -> None:
        """End it in good order, by force after `grace` seconds; no error when it does not run."""
        self.daemon.stop(grace)

    def kill(self) -> None:
        """SIGKILL; its data stays as it was at that moment."""
        self.daemon.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self.daemon.pause()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self.daemon.resume()

    def wipe(self) -> None:
        """Remove everything that it stored, after it was stopped."""
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_for_answer(daemon: Daemon, answer: Callable[[], str | None], seconds: float) -> None:
    """Poll `answer` until it is not None. Raises `PartFailed` when the process dies or `seconds` pass."""
    deadline = clock.monotonic() + seconds
    while answer() is None:
        interrupt.heed()
        if not daemon.running:
            raise daemon.failed("died while starting")
        if clock.monotonic() > deadline:
            raise daemon.failed(f"gave no answer within {seconds:.0f} s")
        time.sleep(_TICK_SECONDS)
