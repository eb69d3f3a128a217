"""Every mutant still applies: its code stands in its file, its test exists."""

import subprocess
import sys
from pathlib import Path


def test_every_mutant_applies_and_its_test_exists() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run.py")), "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
