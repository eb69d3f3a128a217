"""The command line: the composition root. Everything heavy is imported inside a command."""

import sys
from typing import Annotated, NoReturn

import typer

from orderflow.cli import audit, customers, db, groups, keys, mail, outbox, schemas, stack, stock, topics
from orderflow.cli.api import api
from orderflow.cli.config import config
from orderflow.cli.doctor import doctor
from orderflow.cli.failures import INTERRUPTED, sentence
from orderflow.cli.janitor import janitor
from orderflow.cli.local import demo, down, up
from orderflow.cli.provision import provision
from orderflow.cli.relay import relay
from orderflow.cli.worker import worker
from orderflow.core import interrupt

PIPE_CLOSED = 141
"""What a shell makes of a death by SIGPIPE."""

app = typer.Typer(
    name="orderflow",
    help="A shop's order events on Kafka: nothing lost, nothing doubled where it can be helped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(stack.app)
app.add_typer(mail.app)
app.add_typer(schemas.app)
app.add_typer(db.app)
app.add_typer(topics.app)
app.add_typer(groups.app)
app.add_typer(keys.app)
app.add_typer(customers.app)
app.add_typer(outbox.app)
app.add_typer(stock.app)
app.add_typer(audit.app)
app.command()(api)
app.command()(relay)
app.command()(worker)
app.command()(provision)
app.command()(up)
app.command()(down)
app.command()(demo)
app.command()(config)
app.command()(doctor)
app.command()(janitor)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if asked:
        from importlib.metadata import version

        typer.echo(version("orderflow"))
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Run a command; our errors become one sentence and their exit code, an interrupt 130, a closed pipe 141."""
    interrupt.note()
    try:
        app()
    except SystemExit as stop:
        # Typer turns an interrupt into this code without a word.
        if stop.code == INTERRUPTED or interrupt.was_asked():
            _leave_interrupted()
        # Typer and rich turn a reader that left (`orderflow config | head -1`) into code 1, that of a failure.
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(PIPE_CLOSED)
        raise
    except KeyboardInterrupt:
        _leave_interrupted()
    except Exception as error:
        if interrupt.was_asked():
            _leave_interrupted()
        told = sentence(error)
        if told is None:
            raise
        message, code = told
        typer.echo(f"orderflow: {message}", err=True)
        sys.exit(code)
    if interrupt.was_asked():
        _leave_interrupted()
    sys.exit(0)


def _leave_interrupted() -> NoReturn:
    typer.echo("orderflow: interrupted; run it again", err=True)
    sys.exit(INTERRUPTED)
