"""What is seen while the demo runs: one live picture on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orderflow.core import clock
from orderflow.ops.demo.progress import Standing
from orderflow.ops.stack.progress import Reporter

TITLE = "orderflow demo: a shop on a real Kafka, three consumer groups, 200 orders"
_LINES_SECONDS = 3.0
_WIDTH = 62


class Display(Reporter, Protocol):
    """Told what happens; it decides what to show. May be called from several threads."""

    def begin(self, text: str) -> None:
        """Tell of a step, before it."""

    def note(self, text: str) -> None:
        """Tell how far the present step is."""

    def end(self, text: str) -> None:
        """Tell what the step has done."""

    def standings(self, standings: Sequence[Standing]) -> None:
        """Tell where the groups stand."""


class Lines:
    """Plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._step_began = clock.monotonic()
        self._next = 0.0
        console.print(f"{TITLE}\n", highlight=False, markup=False, soft_wrap=True)

    def begin(self, text: str) -> None:
        """Show nothing: the end is told."""
        del text
        self._step_began = clock.monotonic()

    def note(self, text: str) -> None:
        """Show nothing."""

    def end(self, text: str) -> None:
        """Show the step and how long it took."""
        self._print(f"{text} ({clock.monotonic() - self._step_began:.1f} s)")

    def standings(self, standings: Sequence[Standing]) -> None:
        """Show them every few seconds, and at the end."""
        now = clock.monotonic()
        if now >= self._next or all(one.drained for one in standings):
            self._next = now + _LINES_SECONDS
            for one in standings:
                self._print(
                    f"  {one.group}: {one.processed} processed, {one.waiting} waiting for a retry, {one.dead} dead, "
                    f"lag {one.lag}, oldest {_age(one)}"
                )

    def jar(self, done: int, total: int, name: str) -> None:
        """Show about every fourth part of the download."""
        del name
        if done * 4 // total != (done - 1) * 4 // total:
            self.step(f"downloading Kafka: {done} of {total} jars")

    def step(self, text: str) -> None:
        """Show a slow step of the stack."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(
            f"{clock.monotonic() - self._began:5.1f} s  {text}", highlight=False, markup=False, soft_wrap=True
        )


class Picture:
    """A live picture: the steps done, the present one, and where each group stands."""

    def __init__(self) -> None:
        self._done: list[tuple[str, float]] = []
        self._spinner: Spinner | None = None
        self._text = ""
        self._began = clock.monotonic()
        self._standings: Sequence[Standing] = ()

    def begin(self, text: str) -> None:
        """Show it with a spinner."""
        self._began = clock.monotonic()
        self._text = text
        self._spinner = Spinner("dots", text, style="cyan")

    def note(self, text: str) -> None:
        """Show it behind the present step."""
        if self._spinner is not None:
            self._spinner.update(text=f"{self._text}: {text}")

    def end(self, text: str) -> None:
        """Tick it off."""
        self._done.append((text, clock.monotonic() - self._began))
        self._spinner = None

    def standings(self, standings: Sequence[Standing]) -> None:
        """Show them as the table."""
        self._standings = standings

    def jar(self, done: int, total: int, name: str) -> None:
        """Show it behind the present step."""
        self.note(f"downloading jar {done} of {total}, {name}")

    def step(self, text: str) -> None:
        """Show it behind the present step."""
        self.note(text)

    def __rich__(self) -> RenderableType:
        """Return the picture of this moment."""
        rows: list[RenderableType] = [Text(TITLE, style="bold"), Text()]
        rows += [
            Text.assemble(("✓ ", "green"), f"{text:<{_WIDTH}}", (f"{seconds:5.1f} s", "dim"))
            for text, seconds in self._done
        ]
        if self._spinner is not None:
            rows.append(self._spinner)
        if self._standings:
            rows += [Text(), standings_table(self._standings)]
        return Group(*rows)


def standings_table(standings: Sequence[Standing]) -> Table:
    """Return where the groups stand as a table."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=True)
    table.add_column("group")
    for title in ("processed", "waiting retry", "dead", "lag", "oldest"):
        table.add_column(title, justify="right", min_width=9)
    for one in standings:
        table.add_row(
            one.group,
            f"{one.processed:,}",
            Text(str(one.waiting), style="yellow" if one.waiting else ""),
            Text(str(one.dead), style="magenta" if one.dead else ""),
            f"{one.lag:,}",
            _age(one),
        )
    return table


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Yield what suits the console; a picture's last state stays."""
    if not console.is_terminal:
        yield Lines(console)
        return
    picture = Picture()
    with Live(picture, console=console, refresh_per_second=10):
        yield picture


def console_for(*, json: bool) -> Console:
    """Return where a run is shown: standard error when standard output is for the JSON."""
    return Console(file=sys.stderr if json else sys.stdout)


def _age(one: Standing) -> str:
    return "-" if one.oldest_seconds is None else f"{one.oldest_seconds:.1f} s"
