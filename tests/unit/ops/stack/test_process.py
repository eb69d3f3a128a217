"""A background process: who it is, what it said, and that it ends."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from orderflow.core import clock
from orderflow.ops.stack.process import (
    RECORD,
    Command,
    Daemon,
    PartFailed,
    kill_recorded,
    read_json,
    run_to_end,
    write_json,
)

SLEEP = "import time; print('begun', flush=True); time.sleep(600)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon("sleeper", tmp_path / "sleeper")
    yield daemon
    daemon.kill()


def python(code: str, folder: Path) -> Command:
    return Command([sys.executable, "-c", code], {"PATH": os.environ["PATH"]}, folder)


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_later_command_finds_the_process_by_its_record(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(SLEEP, tmp_path))
    later = Daemon("sleeper", tmp_path / "sleeper")
    assert later.pid == daemon.pid
    later.stop()
    assert not daemon.running
    assert not daemon.died


def test_a_pid_that_belongs_to_somebody_else_now_is_never_signalled(daemon: Daemon, tmp_path: Path) -> None:
    other = Daemon("other", tmp_path / "other")
    other.spawn(python(SLEEP, tmp_path))
    try:
        record = read_json(tmp_path / "other" / RECORD)
        assert record is not None
        write_json(tmp_path / "sleeper" / RECORD, record | {"started": record["started"] - 60})
        assert not daemon.running
        assert daemon.died
        daemon.stop()
        daemon.kill()
        assert other.running
    finally:
        other.kill()


def test_a_death_is_told_with_what_was_written_since_the_last_start(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python("print('of the first run')", tmp_path))
    eventually(lambda: daemon.died)
    daemon.spawn(python("print('out of luck'); raise SystemExit(3)", tmp_path))
    eventually(lambda: daemon.died)
    told = str(daemon.failed("died"))
    assert "sleeper died" in told
    assert "out of luck" in told
    assert "of the first run" not in told
    assert str(daemon.log) in told


def test_a_killed_child_is_reaped_and_counts_as_dead(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(SLEEP, tmp_path))
    pid = daemon.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: daemon.died)
    assert not psutil.pid_exists(pid)


def test_stopping_ends_children_that_would_stay(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(WITH_CHILD, tmp_path))
    process = daemon.process
    assert process is not None
    eventually(process.children)
    child = process.children()[0]
    daemon.stop(grace=0.5)
    assert not child.is_running()


def test_what_ignores_the_request_to_stop_is_killed(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(STUBBORN, tmp_path))
    eventually(lambda: "begun" in daemon.log_end())
    process = daemon.process
    daemon.stop(grace=0.2)
    assert process is not None
    assert not process.is_running()


def test_a_paused_process_lives_and_can_still_be_stopped(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(SLEEP, tmp_path))
    daemon.pause()
    process = daemon.process
    assert process is not None
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    assert daemon.running
    daemon.stop(grace=5)
    assert not process.is_running()


def test_stopping_what_is_dead_already_is_no_error(daemon: Daemon, tmp_path: Path) -> None:
    daemon.stop()
    daemon.spawn(python("", tmp_path))
    eventually(lambda: daemon.died)
    daemon.stop()
    assert not daemon.died


def test_everything_recorded_under_a_folder_can_be_killed(daemon: Daemon, tmp_path: Path) -> None:
    daemon.spawn(python(SLEEP, tmp_path))
    kill_recorded(tmp_path)
    assert not daemon.running


def test_a_program_that_is_not_there_is_named(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(PartFailed, match=r"sleeper cannot be run: No such file.*no-such-program"):
        daemon.spawn(Command(["/no-such-program"], {}, tmp_path))


def test_a_short_command_that_fails_is_told_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(PartFailed, match=r"(?s)exit code 3.*no disk left"):
        run_to_end(python("print('no disk left'); raise SystemExit(3)", tmp_path))
