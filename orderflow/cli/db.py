"""`orderflow db`: the tables."""

import typer

from orderflow.cli.output import Json, print_json, print_problems

app = typer.Typer(name="db", help="The tables in PostgreSQL.", no_args_is_help=True)


@app.command()
def apply(*, as_json: Json = False) -> None:
    """Apply the migrations that are missing."""
    from orderflow.core import settings
    from orderflow.ops.provision import database

    applied = database.apply(settings.load())
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo(f"migrations applied: {', '.join(applied) or 'none, all were'}")


@app.command()
def check(*, as_json: Json = False) -> None:
    """Show the migrations that are missing; exit 78 if there are any."""
    from orderflow.core import settings
    from orderflow.ops.provision import database

    print_problems(database.check(settings.load()), as_json=as_json, nothing="all migrations are applied")
