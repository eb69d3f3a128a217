import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from orderflow.core import clock
from orderflow.ops.stack.process import kill_recorded

WAIT_SECONDS = 180.0


@pytest.fixture
def orderflow(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that runs `orderflow VERB...` in the test's folder, temporary files there too."""
    started: list[subprocess.Popen[str]] = []
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ORDERFLOW_")}

    def run(*verb: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "orderflow", *verb],
            cwd=tmp_path,
            env=environ | {"TMPDIR": str(tmp_path), "COLUMNS": "200", "PYTHONSAFEPATH": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
    with contextlib.suppress(OSError):  # a killed demo's own watchdog may be clearing away
        kill_recorded(tmp_path)


@pytest.fixture
def left_running(tmp_path: Path) -> Callable[[], list[str]]:
    """Return a function that lists the processes that work in the test's folder or name it."""

    def look() -> list[str]:
        found: list[str] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if process.pid != os.getpid() and (
                    str(tmp_path) in command or Path(process.cwd()).is_relative_to(tmp_path)
                ):
                    found.append(f"{process.pid} {command}")
        return found

    return look


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool], str], None]:
    """Return a function that waits for a condition and fails, naming it, when it does not come."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        until = clock.monotonic() + WAIT_SECONDS
        pause = threading.Event()
        while not condition():
            assert clock.monotonic() < until, f"waited {WAIT_SECONDS:.0f} s for {what}"
            pause.wait(0.05)

    return wait
