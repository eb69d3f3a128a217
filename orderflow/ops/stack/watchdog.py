"""Ends what a killed starter left running.

The watchdog is a small process that reads a pipe of which the starter holds the other end. Only the
starter's death (or `release`) closes it. The kernel's own parent-death signal would not do: it fires
when the *thread* that started a child ends, and parts are started by threads.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

_RELEASED = b"released"


class Watchdog:
    """The starter's end: a context manager around everything that is recorded under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        """Begin; a second call changes nothing."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", __spec__.name, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
                start_new_session=True,
            )

    def release(self) -> None:
        """Tell it that all was ended in good order, and reap it."""
        if self._process is not None:
            self._process.communicate(_RELEASED)
            self._process = None

    def __enter__(self) -> Self:
        """Begin."""
        self.watch()
        return self

    def __exit__(self, *_: object) -> None:
        """Release."""
        self.release()


def main() -> None:
    """Wait for the pipe to close; unless it was released, kill what is recorded and remove what a stack stored."""
    folder = Path(sys.argv[1])
    if sys.stdin.buffer.read() == _RELEASED:
        return
    # Imported only now: while it waits, it should cost next to nothing.
    from orderflow.ops.stack.layout import Layout  # noqa: PLC0415
    from orderflow.ops.stack.process import kill_recorded  # noqa: PLC0415
    from orderflow.ops.stack.stack import LocalStack  # noqa: PLC0415

    kill_recorded(folder)
    if Layout.load(folder) is not None:
        LocalStack.join(folder).down(wipe=True)


if __name__ == "__main__":
    main()
