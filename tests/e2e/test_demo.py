import contextlib
import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
import pytest
from rich.console import Console

from orderflow.ops.demo import summary
from orderflow.ops.demo.accounting import Books, Line
from orderflow.ops.demo.odd import Fate
from orderflow.ops.demo.run import Result
from tests.e2e.docs.blocks import parse

pytestmark = [pytest.mark.usefixtures("local_stack"), pytest.mark.timeout(400)]

Start = Callable[..., Popen[str]]
WaitUntil = Callable[[Callable[[], bool], str], None]
SECONDS = 300.0


def child(demo: Popen[str], *verb: str) -> psutil.Process | None:
    """Return the demo's process of a role, once it is there."""
    for process in psutil.Process(demo.pid).children():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-len(verb) :] == list(verb):
                return process
    return None


def test_the_demo_balances_its_books_and_leaves_nothing_behind(
    orderflow: Start, left_running: Callable[[], list[str]], tmp_path: Path
) -> None:
    demo = orderflow("demo", "--json")
    out, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, err
    told = json.loads(out)
    assert told["right"] is True
    assert told["differences"] == []
    assert told["orders"] == 200
    assert told["mails"] == {"due": 199, "sent": 199}
    assert [group["group"] for group in told["groups"]] == ["email", "inventory", "audit"]
    for group in told["groups"]:
        assert group["applied"] + group["stale"] + group["skipped"] + group["dead"] == group["published"] == 352
        assert group["pending"] == 0
    assert [group["dead"] for group in told["groups"]] == [2, 1, 1]
    assert len(told["odd"]) == 5
    assert "nothing is pending" in err
    assert left_running() == []
    assert list(tmp_path.iterdir()) == []
    (shown,) = (block.parsed.source for block in parse("README.md") if "books of 200" in block.parsed.source)
    assert shown in screen(told)


def screen(told: dict[str, Any]) -> str:
    """Return what the same run shows to people."""
    books = Books([Line(**group) for group in told["groups"]], told["mails"]["due"], told["mails"]["sent"], ())
    file = io.StringIO()
    summary.show(
        Result(told["orders"], books, [Fate(**odd) for odd in told["odd"]], told["seconds"], None),
        Console(file=file, width=80),
    )
    return file.getvalue()


@pytest.mark.long
def test_an_interrupted_demo_clears_away_and_says_130(
    orderflow: Start, left_running: Callable[[], list[str]], wait_until: WaitUntil, tmp_path: Path
) -> None:
    demo = orderflow("demo")
    wait_until(lambda: child(demo, "relay") is not None, "the relay to be started")
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 130
    assert err == "orderflow: interrupted; run it again\n"
    assert left_running() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_role_that_dies_is_told_with_the_end_of_its_log(
    orderflow: Start, left_running: Callable[[], list[str]], wait_until: WaitUntil, tmp_path: Path
) -> None:
    demo = orderflow("demo", "--keep")

    def log() -> str:
        return "".join(path.read_text() for path in tmp_path.glob("orderflow-demo-*/state/roles/inventory/log"))

    wait_until(lambda: "worker started" in log(), "the inventory worker to be started")
    worker = child(demo, "worker", "inventory")
    assert worker is not None
    worker.kill()
    _, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 1
    assert err.startswith("orderflow: inventory worker died")
    assert '"event": "worker started"' in err
    assert left_running() == []
    (kept,) = tmp_path.glob("orderflow-demo-*/logs")
    assert f"all logs are in {kept}" in err
    assert "worker started" in (kept / "inventory-worker.log").read_text()
    assert [path.name for path in kept.parent.iterdir()] == ["logs"]


@pytest.mark.long(whole=True)
def test_what_a_killed_demo_had_started_ends_too(
    orderflow: Start, left_running: Callable[[], list[str]], wait_until: WaitUntil
) -> None:
    demo = orderflow("demo")
    wait_until(lambda: child(demo, "relay") is not None, "the relay to be started")
    demo.kill()
    demo.communicate(timeout=SECONDS)
    wait_until(lambda: left_running() == [], "everything to end")
