"""The product's processes, watched as a service manager would: what ends by itself is noted and started again."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orderflow.ops.stack.part import plain_environment
from orderflow.ops.stack.process import Command, Daemon
from tests.checker.facts import Fault, Kind

TREE = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.05
RESTART_SECONDS = 0.5
STALL_SECONDS = 0.5
STOP_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Exit:
    """A process that ended by itself: when, after how many seconds, with which code, and its last words."""

    name: str
    at: float
    lived: float
    code: int | None
    said: str


@dataclass
class Role:
    """One process of `orderflow VERB`."""

    name: str
    kind: str
    group: str
    verb: tuple[str, ...]
    environ: Mapping[str, str]
    daemon: Daemon
    spare: bool = False
    wanted: bool = False
    started: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        with self.lock:
            self.wanted = True
            if not self.daemon.running:
                argv = [sys.executable, "-P", "-m", "orderflow", *self.verb]
                # The code beside these tests, also in a copy of the tree; no bytecode, since a copy may be edited.
                ours = {"PYTHONPATH": str(TREE), "PYTHONDONTWRITEBYTECODE": "1"}
                self.started = time.time()
                self.daemon.spawn(Command(argv, plain_environment(**ours, **self.environ), self.daemon.log.parent))

    def kill(self) -> None:
        with self.lock:
            self.daemon.kill()

    def stop(self) -> float:
        """SIGTERM; return how long it took."""
        began = time.monotonic()
        with self.lock:
            self.wanted = False
            self.daemon.stop(STOP_SECONDS)
        return time.monotonic() - began


class Roles:
    """All processes. As a context manager they are killed in the end, unless they were stopped before."""

    def __init__(self, folder: Path, note: Callable[[Fault], None]) -> None:
        self.all: list[Role] = []
        self.exits: list[Exit] = []
        self._folder = folder
        self._note = note
        self._ended = threading.Event()

    def add(
        self, name: str, kind: str, verb: tuple[str, ...], environ: Mapping[str, str], *, group: str = "", spare: bool
    ) -> None:
        folder = self._folder / name
        folder.mkdir(parents=True)
        self.all.append(Role(name, kind, group, verb, environ, Daemon(name, folder), spare))

    def of(self, kind: str, *, spare: bool = False) -> list[Role]:
        return [role for role in self.all if role.kind == kind and role.spare == spare]

    @contextmanager
    def watched(self) -> Iterator[None]:
        watch = threading.Thread(target=self._watch, name="watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._ended.set()
            watch.join()
            for role in self.all:
                role.kill()

    def stop_all(self) -> list[str]:
        """Stop everybody at once; return the names of those that had to be killed."""
        took: dict[str, float] = {}

        def stop(role: Role) -> None:
            took[role.name] = role.stop()

        threads = [threading.Thread(target=stop, args=(role,)) for role in self.all if role.wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [name for name, seconds in took.items() if seconds >= STOP_SECONDS]

    def _watch(self) -> None:
        """Note who ended, and whether the machine itself had no time for us."""
        looked = time.time()
        again: dict[str, float] = {}
        while not self._ended.wait(LOOK_SECONDS):
            now = time.time()
            if now - looked > STALL_SECONDS:
                self._note(Fault(Kind.STALL, "machine", looked, now, name="the machine"))
            for role in self.all:
                if role.lock.acquire(blocking=False):
                    try:
                        self._look(role, again, now)
                    finally:
                        role.lock.release()
            looked = time.time()

    def _look(self, role: Role, again: dict[str, float], now: float) -> None:
        if role.wanted and not role.daemon.running:
            if role.name not in again:
                again[role.name] = now + RESTART_SECONDS
                if role.daemon.died:
                    self._ended_by_itself(role, now)
            elif now >= again[role.name]:
                del again[role.name]
                role.start()

    def _ended_by_itself(self, role: Role, now: float) -> None:
        child = role.daemon._child
        # Its first thread may be gone before the others: then it has no code yet.
        code = child.wait(10) if child is not None else None
        self.exits.append(Exit(role.name, now, now - role.started, code, role.daemon.log_end(3)[-1_000:]))
        self._note(Fault(Kind.EXIT, role.kind, now - 2 * LOOK_SECONDS, now, role.group, f"{role.name} (code {code})"))
