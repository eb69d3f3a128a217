"""What the first start shows."""

import pytest

from orderflow.ops.stack.progress import reporter


def test_without_a_terminal_a_download_is_a_few_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter() as progress:
        for done in range(1, 47):
            progress.jar(done, 46, f"{done}.jar")
        progress.step("preparing")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "downloading Kafka: 12 of 46 jars",
        "downloading Kafka: 23 of 46 jars",
        "downloading Kafka: 35 of 46 jars",
        "downloading Kafka: 46 of 46 jars",
        "preparing",
    ]
