"""How the first start, which downloads, shows that it is alive: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINES = 4


class Reporter(Protocol):
    """Told about slow steps; it decides what to show."""

    def jar(self, done: int, total: int, name: str) -> None:
        """Tell of one more downloaded jar."""

    def step(self, text: str) -> None:
        """Tell of a step that takes seconds, before it."""


class Silent:
    """Shows nothing; for tests."""

    def jar(self, done: int, total: int, name: str) -> None:
        """Show nothing."""

    def step(self, text: str) -> None:
        """Show nothing."""


class Lines:
    """A line now and then on standard error."""

    def jar(self, done: int, total: int, name: str) -> None:
        """Show about every fourth part of the download."""
        del name
        if done * _LINES // total != (done - 1) * _LINES // total:
            self.step(f"downloading Kafka: {done} of {total} jars")

    def step(self, text: str) -> None:
        """Show it."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is the display


class Bar:
    """A live bar on a terminal."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._task = display.add_task("starting", total=None, visible=False)

    def jar(self, done: int, total: int, name: str) -> None:
        """Move the bar."""
        self._display.update(
            self._task, description=f"downloading Kafka: {name}", completed=done, total=total, visible=done < total
        )

    def step(self, text: str) -> None:
        """Show it with a bar of unknown length."""
        self._display.update(self._task, description=text, completed=0, total=None, visible=True)


@contextmanager
def reporter() -> Iterator[Reporter]:
    """Yield what suits standard error: a bar that vanishes at the end, or lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as display:
        yield Bar(display)
