"""`orderflow stock`: load and list what there is to sell."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="stock", help="What there is to sell, and what of it is reserved.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def load(
    file: Annotated[Path, typer.Argument(help="A .json or .csv file of sku and on_hand.")], *, as_json: Json = False
) -> None:
    """Set the pieces on hand of each article in FILE, all or none; other articles stay as they are."""
    from consumers.inventory import fixtures, stock
    from consumers.runtime import postgres
    from orderflow.core import settings

    on_hand = fixtures.read(file)
    with postgres.connected(settings.load(), "inventory", *stock.RELATIONS) as connection:
        count = stock.load(connection, on_hand)
    if as_json:
        typer.echo(json.dumps({"articles": count, "pieces": sum(on_hand.values())}))
    else:
        typer.echo(f"{count:,} articles, {sum(on_hand.values()):,} pieces on hand")


@app.command("ls")
def list_(*, as_json: Json = False) -> None:
    """List every article."""
    from consumers.inventory import stock
    from consumers.runtime import postgres
    from orderflow.core import settings

    with postgres.connected(settings.load(), "inventory", *stock.RELATIONS) as connection:
        levels = stock.levels(connection)
    if as_json:
        rows = [
            {"sku": one.sku, "on_hand": one.on_hand, "reserved": one.reserved, "available": one.available}
            for one in levels
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    if not levels:
        typer.echo("no article is in stock yet; `orderflow stock load FILE` puts some there")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("article")
    for title in ("on hand", "reserved", "available"):
        table.add_column(title, justify="right")
    for one in levels:
        table.add_row(one.sku, f"{one.on_hand:,}", f"{one.reserved:,}", f"{one.available:,}")
    Console().print(table)
