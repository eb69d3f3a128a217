"""`orderflow stock`: load and list what there is to sell."""

from pathlib import Path
from typing import Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

app = typer.Typer(name="stock", help="What there is to sell, and what of it is reserved.", no_args_is_help=True)


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
        print_json({"articles": count, "pieces": sum(on_hand.values())})
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
        print_json(
            [
                {"sku": one.sku, "on_hand": one.on_hand, "reserved": one.reserved, "available": one.available}
                for one in levels
            ]
        )
        return
    if not levels:
        typer.echo("no article is in stock yet; `orderflow stock load FILE` puts some there")
        return
    counts = ("on hand", "reserved", "available")
    print_table(
        ("article", *counts),
        [(one.sku, f"{one.on_hand:,}", f"{one.reserved:,}", f"{one.available:,}") for one in levels],
        numbers=counts,
    )
