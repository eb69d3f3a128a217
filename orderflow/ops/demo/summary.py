"""What is told at the end: what became of the odd ones, the books, and what to try next."""

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orderflow.ops.demo.run import Result
from orderflow.ops.local.activate import activation

NEXT = (
    ("orderflow up", "the same shop, left running, for your own orders"),
    ("orderflow mail ls", "the mails that it sent, once it runs"),
    ("orderflow demo --keep", "this run again, with all logs kept"),
)
_SHOWN = 20


def as_json(result: Result) -> dict[str, Any]:
    """Return the result for programs."""
    books = result.books
    return {
        "right": result.right,
        "seconds": round(result.seconds, 1),
        "orders": result.orders,
        "groups": [{name: getattr(line, name) for name in line.__slots__} for line in books.lines],
        "mails": {"due": books.mails_due, "sent": books.mails_sent},
        "odd": [{"what": fate.what, "became": fate.became, "right": fate.right} for fate in result.fates],
        "differences": [{"book": one.book, "what": one.what, "how": one.how} for one in books.differences],
        "logs": None if result.logs is None else str(result.logs),
    }


def show(result: Result, console: Console) -> None:
    """Print the result for people."""
    with console.capture() as captured:
        console.print(Group(*_odd(result), Text(), *_books(result), Text(), *_next(result)))
    told = "\n".join(line.rstrip() for line in captured.get().splitlines())
    console.file.write(f"\n{told}\n")


def _odd(result: Result) -> list[RenderableType]:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for fate in result.fates:
        table.add_row(_mark(right=fate.right), fate.what, fate.became)
    return [Text("What became of the odd ones", style="bold"), table]


def _books(result: Result) -> list[RenderableType]:
    books = result.books
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("group")
    for title in ("records", "applied", "stale", "not its own", "dead", "pending"):
        table.add_column(title, justify="right")
    for line in books.lines:
        figures = (line.published, line.applied, line.stale, line.skipped, line.dead, line.pending)
        table.add_row(line.group, *(f"{figure:,}" for figure in figures))
    rows: list[RenderableType] = [
        Text(f"The books of {result.orders} orders, from topics, tables and mail folder", style="bold"),
        table,
    ]
    if books.balance:
        told = f"They balance, event by event; of {books.mails_due} mails due each was sent, and none twice."
        return [*rows, Text.assemble(_mark(right=True), " ", told)]
    rows.append(Text.assemble(_mark(right=False), f" They do not balance: {len(books.differences)} differences"))
    rows += [Padding(Text(str(one)), (0, 0, 0, 2)) for one in books.differences[:_SHOWN]]
    if len(books.differences) > _SHOWN:
        rows.append(Padding(Text(f"and {len(books.differences) - _SHOWN} more (--json lists all)"), (0, 0, 0, 2)))
    return rows


def _next(result: Result) -> list[RenderableType]:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    first = activation()
    for command, what in ((first, "so that this shell finds them"), *NEXT) if first else NEXT:
        table.add_row(Text(command, style="cyan"), what)
    kept = [Text(f"All logs are in {result.logs}"), Text()] if result.logs else []
    return [*kept, Text("Next", style="bold"), table]


def _mark(*, right: bool) -> Text:
    return Text("✓", style="green") if right else Text("✗", style="bold red")
