"""The command line: the composition root. Everything heavy is imported inside a command."""

import sys
from typing import Annotated, NoReturn

import typer

from orderflow.cli import schemas
from orderflow.core.errors import OrderflowError

app = typer.Typer(
    name="orderflow",
    help="A shop's order events on Kafka: nothing lost, nothing doubled where it can be helped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(schemas.app)


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,  # noqa: FBT002
) -> None:
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415

        typer.echo(installed("orderflow"))
        raise typer.Exit


def main() -> NoReturn:
    """Run a command; turn our errors into one sentence and their exit code, an interrupt into 130."""
    try:
        app()
    except OrderflowError as error:
        typer.echo(f"orderflow: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("orderflow: interrupted; run it again", err=True)
        sys.exit(130)
    sys.exit(0)
