"""`orderflow up`, `orderflow down` and `orderflow demo`: the whole shop on this machine."""

from typing import Annotated

import typer

from orderflow.cli.output import Json, print_json


def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs of every process and say where.")] = False,
    as_json: Json = False,
) -> None:
    """Run a whole shop once, on free ports: 200 orders, some odd; exit 0 if its books balance."""
    from orderflow.ops.demo import summary
    from orderflow.ops.demo.display import console_for, display
    from orderflow.ops.demo.run import run

    console = console_for(json=as_json)
    with display(console) as shown:
        result = run(shown, keep=keep)
    if as_json:
        print_json(summary.as_json(result))
    else:
        summary.show(result, console)
    if not result.right:
        raise typer.Exit(1)
