"""How a start, which takes seconds and may download, shows that it is alive: on a terminal, and by plain lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

_LINES = 4
_BAR_WIDTH = 12


class Reporter(Protocol):
    """Told about slow steps; it decides what to show."""

    def jar(self, done: int, total: int, name: str) -> None:
        """Tell of one more downloaded jar."""

    def step(self, text: str) -> None:
        """Tell of a step that takes seconds, before it; it ends the step before."""


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


class Steps:
    """The steps on a terminal: those done are ticked off with their seconds, the present one moves."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._present: TaskID | None = None
        self._text = ""

    def jar(self, done: int, total: int, name: str) -> None:
        """Show a bar in the present step until the last one is there."""
        if self._present is None:
            self.step("downloading Kafka")
        if self._present is not None:
            if done < total:
                self._display.update(
                    self._present, description=f"downloading {name}", completed=done, total=total, counted=True
                )
                self._display.refresh()
            else:
                self._display.update(self._present, description=self._text, completed=0, counted=False)

    def step(self, text: str) -> None:
        """Tick off the step before and show this one."""
        self.end()
        self._text = text
        self._present = self._display.add_task(text, total=None, counted=False)

    def end(self) -> None:
        """Tick off the present step."""
        if self._present is not None:
            self._display.update(self._present, description=self._text, completed=1, total=1, counted=False)
            self._present = None


class _Counted(ProgressColumn):
    """Another column, empty for a step whose length nobody knows."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return self._column(task) if task.fields["counted"] else Text()


class _Seconds(ProgressColumn):
    """The seconds that a step takes or took."""

    def render(self, task: Task) -> RenderableType:
        return Text(f"{task.finished_time if task.finished else task.elapsed or 0.0:5.1f} s", style="dim")


@contextmanager
def reporter(console: Console | None = None) -> Iterator[Reporter]:
    """Yield what suits the console, standard error unless given: steps that are ticked off, or lines.

    When it is left by an error, the step that failed is not ticked off.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓[/green]"),
        TextColumn("{task.description}", markup=False),
        _Counted(BarColumn(_BAR_WIDTH)),
        _Counted(MofNCompleteColumn()),
        _Seconds(),
    )
    with Progress(*columns, console=console) as display:
        steps = Steps(display)
        yield steps
        steps.end()
