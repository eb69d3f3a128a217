"""Ends a stack whose starter was killed.

The watchdog is a small process that reads a pipe of which the starter holds the other end. Only the
starter's death (or `release`) closes it. The kernel's own parent-death signal would not do: it fires
when the *thread* that started a child ends, and parts are started by threads.
"""

import subprocess
import sys
from pathlib import Path


class Watchdog:
    """The starter's end."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        """Begin; nothing happens a second time."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "orderflow.ops.stack.watchdog", str(self._state_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def release(self) -> None:
        """Tell it that the stack was stopped in good order, and reap it."""
        if self._process is not None:
            self._process.communicate(b"released")
            self._process = None


def main() -> None:
    """Wait for the pipe to close; end the stack unless it was released."""
    state_dir = Path(sys.argv[1])
    if sys.stdin.buffer.read() == b"released":
        return
    # Imported only now: while it waits, it should cost next to nothing.
    from orderflow.ops.stack.stack import LocalStack  # noqa: PLC0415

    stack = LocalStack.join(state_dir)
    for part in stack.parts:
        part.kill()
    stack.down(wipe=True)


if __name__ == "__main__":
    main()
