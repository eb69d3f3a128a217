"""What a start shows."""

import io
import re

import pytest
from rich.console import Console

from orderflow.ops.stack.progress import reporter


@pytest.fixture
def terminal() -> Console:
    """A terminal of 80 columns whose screen can be read."""
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def screens(terminal: Console) -> str:
    """Return everything that it was sent, without the control sequences."""
    assert isinstance(terminal.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.file.getvalue())


def test_without_a_terminal_a_download_is_a_few_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter() as progress:
        progress.step("starting")
        for done in range(1, 47):
            progress.jar(done, 46, f"{done}.jar")
        progress.step("preparing")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "starting",
        "downloading Kafka: 12 of 46 jars",
        "downloading Kafka: 23 of 46 jars",
        "downloading Kafka: 35 of 46 jars",
        "downloading Kafka: 46 of 46 jars",
        "preparing",
    ]


def test_on_a_terminal_each_step_stays_ticked_off_with_its_seconds(terminal: Console) -> None:
    with reporter(terminal) as progress:
        progress.step("starting the parts")
        progress.step("making tables")
    left = [line.split() for line in screens(terminal).splitlines()[-2:]]
    assert [(line[0], " ".join(line[1:-2]), line[-1]) for line in left] == [
        ("✓", "starting the parts", "s"),
        ("✓", "making tables", "s"),
    ]
    assert "0/" not in screens(terminal)


def test_on_a_terminal_a_download_is_counted_within_its_step(terminal: Console) -> None:
    with reporter(terminal) as progress:
        progress.step("starting the parts")
        progress.jar(12, 46, "kafka-clients-4.3.1.jar")
        progress.jar(46, 46, "zstd-jni.jar")
    assert re.search(r"downloading kafka-clients-4\.3\.1\.jar +\S+ +12/46", screens(terminal))
    assert re.fullmatch(r"✓ starting the parts +\d+\.\d s *", screens(terminal).splitlines()[-1])


def test_a_step_that_failed_is_not_ticked_off(terminal: Console) -> None:
    def fail() -> None:
        with reporter(terminal) as progress:
            progress.step("starting the parts")
            progress.step("making tables")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    done, failed = screens(terminal).splitlines()[-2:]
    assert done.startswith("✓ starting the parts")
    assert "making tables" in failed
    assert "✓" not in failed
