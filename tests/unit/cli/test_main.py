import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import confluent_kafka
import psycopg
import pytest
import redis

from orderflow import cli
from orderflow.cli.failures import sentence
from orderflow.core.errors import Misconfigured, NothingMatched, OrderflowError, PartialOrUnknown, Refused

Raise = Callable[[BaseException], int]


@pytest.fixture
def exit_code_of(monkeypatch: pytest.MonkeyPatch) -> Raise:
    """Return a function that runs `main` with a command that raises this, and returns the exit code."""

    def run(error: BaseException) -> int:
        def command() -> None:
            raise error

        monkeypatch.setattr(cli, "app", command)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OrderflowError("it failed"), 1),
        (PartialOrUnknown("half of it"), 3),
        (NothingMatched("none"), 4),
        (Refused("no"), 5),
        (Misconfigured("run this first"), 78),
        (psycopg.OperationalError("connection failed:\nrefused"), 78),
        (redis.ConnectionError("refused"), 78),
        (redis.exceptions.TimeoutError("slow"), 78),
        (confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT)), 78),
    ],
)
def test_an_error_becomes_one_sentence_and_its_exit_code(
    error: Exception, code: int, exit_code_of: Raise, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == code

    said = capsys.readouterr().err
    assert said.startswith("orderflow: ")
    assert said.count("\n") == 1


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sentence(KeyError("bug")) is None

    def command() -> None:
        raise KeyError("bug")

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(KeyError):
        cli.main()


def test_an_interrupt_is_130_and_says_to_run_it_again(exit_code_of: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "orderflow: interrupted; run it again\n"


@pytest.mark.parametrize(
    "goes_on", ["pass", "interrupt.heed()", "raise SystemExit(0)", "raise SystemExit(78)", "1 / 0"]
)
def test_control_c_that_a_callback_or_a_finalizer_drops_is_130_all_the_same(goes_on: str) -> None:
    code = (
        "import signal\n"
        "from orderflow import cli\n"
        "from orderflow.core import interrupt\n"
        "class Finalized:\n"
        "    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
        "def command():\n"
        "    Finalized()\n"
        "    print('goes on', flush=True)\n"
        f"    {goes_on}\n"
        "cli.app = command\n"
        "cli.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (130, "goes on\n")
    assert ended.stderr.endswith("orderflow: interrupted; run it again\n")


def test_control_c_during_a_command_is_130_without_a_traceback() -> None:
    # A broker that does not answer keeps the command waiting until it is interrupted.
    environ = {**os.environ, "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "PYTHONUNBUFFERED": "1"}
    code = (
        "import sys; sys.argv = ['orderflow', 'topics', 'check']\n"
        "from orderflow.core import kafka; admin = kafka.admin\n"
        "def announced(settings): print('asking', flush=True); return admin(settings)\n"
        "kafka.admin = announced\n"
        "from orderflow.cli import main; main()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "asking\n"
        running.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, said = running.communicate(timeout=30)

    assert running.returncode == 130, said
    assert said == "orderflow: interrupted; run it again\n"
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "provision"]])
def test_version_is_printed_and_nothing_else_is_done(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "orderflow", *arguments], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, version("orderflow") + "\n")


@pytest.mark.parametrize("arguments", [["--version"], ["config"], ["config", "--json"]])
def test_a_reader_that_left_ends_it_quietly_as_sigpipe_would(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "orderflow", *arguments]
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)

    assert (ended.returncode, ended.stderr) == (141, "")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['orderflow', '--help']\n"
        "from orderflow.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'psycopg', 'confluent_kafka', 'redis', 'fastapi', 'structlog', 'rich.console', 'yoyo'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
