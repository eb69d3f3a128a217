"""What a person types first so that a shell finds the commands that are told to them."""

import shutil
import sys
from pathlib import Path


def activation() -> str | None:
    """Return the line that puts `orderflow` on this shell's path; None where it is there, or no file does that."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("orderflow") or not script.is_file():
        return None
    here = Path.cwd()
    return f"source {script.relative_to(here) if script.is_relative_to(here) else script}"
