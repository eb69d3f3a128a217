"""`orderflow customers`: the customer directory."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="customers", help="The customer directory.", no_args_is_help=True)


@app.callback()
def _noun() -> None:
    """Keep `load` a verb of its own."""


@app.command()
def load(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, readable=True, help='JSON: [{"customer_id", "name", "email", "locale"}, ...]'
        ),
    ],
) -> None:
    """Write the customers of a file into the directory, all of them or none."""
    from orderflow.core import database, settings
    from producers import customers
    from producers.store import tables_exist

    entries = customers.parse(file.read_bytes())
    with database.connect(settings.load().database, "api") as connection, tables_exist():
        written = customers.put(connection, entries)
    typer.echo(f"customers in the directory: {written} written")
