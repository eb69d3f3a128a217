"""`orderflow stack`: Kafka, Redis, PostgreSQL and a mail sink on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orderflow.ops.stack.stack import PartStatus

app = typer.Typer(name="stack", help="Kafka, Redis, PostgreSQL and a mail sink on this machine.", no_args_is_help=True)

_NOT_SO = "Default: as last time, else"


@app.command()
def up(
    *,
    brokers: Annotated[int | None, typer.Option(help=f"1, or 3 that replicate. {_NOT_SO} 1.", min=1, max=3)] = None,
    kafka_port: Annotated[
        int | None, typer.Option(help=f"Of the first broker; more follow it. {_NOT_SO} 9092.", min=1, max=65_530)
    ] = None,
    redis_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 6379.", min=1, max=65_535)] = None,
    postgres_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 5432.", min=1, max=65_535)] = None,
    smtp_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 1025.", min=1, max=65_535)] = None,
    quick_groups: Annotated[
        bool, typer.Option("--quick-groups", help="Groups rebalance in 1 s instead of 5 s, as tests like it.")
    ] = False,
) -> None:
    """Start what does not run, wait until it answers, write `.orderflow/env`."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from orderflow.ops.stack.layout import Layout
    from orderflow.ops.stack.progress import reporter
    from orderflow.ops.stack.stack import PARTS, LocalStack

    folder = _state_dir()
    layout = Layout.for_people(
        Layout.load(folder),
        brokers=brokers,
        kafka=kafka_port,
        redis=redis_port,
        postgres=postgres_port,
        smtp=smtp_port,
        quick_groups=quick_groups,
    )
    with reporter() as progress:
        stack = LocalStack(folder, layout, progress)
        ran = all(part.daemon.running for part in stack.parts)
        progress.step(f"{'asking' if ran else 'starting'} {PARTS}")
        stack.up()
    _print_parts(stack.status())
    typer.echo(
        f"\n{'It ran already' if ran else 'It runs'}; every orderflow command in this folder reads {folder / 'env'}."
    )
    typer.echo("`orderflow stack status` asks it, `orderflow stack down` stops it and keeps its data.")


@app.command()
def down(
    *,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove all that it stored, too.")] = False,
) -> None:
    """Stop every part; nothing is left running."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from orderflow.core.errors import Misconfigured
    from orderflow.ops.stack.layout import Layout, Options, Ports
    from orderflow.ops.stack.stack import LocalStack

    folder = _state_dir()
    try:
        layout = Layout.load(folder)
    except Misconfigured:
        if not wipe:
            raise
        # Whatever it was: the records of its processes say what to stop.
        layout = Layout(Ports.fixed(brokers=3), Options(brokers=3))
    if layout is None:
        typer.echo(f"There is no stack in {folder}.")
        return
    stack = LocalStack(folder, layout)
    stopped = any(part.daemon.running or part.daemon.died for part in stack.parts)
    stack.down(wipe=wipe)
    if wipe:
        typer.echo("Stopped, and its data removed." if stopped else "Nothing ran; its data was removed.")
    else:
        typer.echo(f"{'Stopped' if stopped else 'Nothing ran'}; `orderflow stack up` finds its data again.")


@app.command()
def status(*, as_json: Json = False) -> None:
    """Ask every part, and every role of `orderflow up`; exit 1 when one is dead or silent, 4 when none was started."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from dataclasses import asdict

    from orderflow.core.causes.start import START_IT
    from orderflow.core.errors import Misconfigured, NothingMatched
    from orderflow.ops.local.status import roles_status
    from orderflow.ops.stack.stack import LocalStack

    folder = _state_dir()
    try:
        parts = [*LocalStack.join(folder).status(), *roles_status(folder)]
    except Misconfigured:
        if (folder / "stack.json").exists():
            raise
        parts = []
    if as_json:
        print_json([asdict(part) for part in parts])
    elif parts:
        _print_parts(parts)
    if all(part.state == "stopped" for part in parts):
        message = f"nothing runs in {folder.absolute()}: ask in the folder where `orderflow up` ran, or {START_IT}"
        raise NothingMatched(message)
    if any(part.state != "running" for part in parts):
        raise typer.Exit(1)


def _print_parts(parts: "Sequence[PartStatus]") -> None:
    print_table(
        ("part", "state", "address", "pid", "says"),
        [
            (part.name, part.state, f"127.0.0.1:{part.port}", part.pid or "", "" if part.state == "dead" else part.said)
            for part in parts
        ],
    )
    for part in parts:
        if part.state == "dead":
            typer.echo(f"\n{part.name} died; the end of {part.log}:\n{part.said}")


def _state_dir() -> Path:
    from orderflow.core import settings

    # Not from the local env file: it may be the very thing that is broken.
    return settings.load(env_file=Path()).state_dir
