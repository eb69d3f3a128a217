"""`orderflow provision`: tables, topics, and the first positions of a new cluster."""

import typer

from orderflow.cli.output import Json, print_json


def provision(*, as_json: Json = False) -> None:
    """Make tables and topics; on a new cluster let the known groups start at the first record."""
    from dataclasses import asdict

    from orderflow.core import settings
    from orderflow.ops.provision.provision import provision as run

    done = run(settings.load())
    if as_json:
        print_json(asdict(done))
        return
    typer.echo(f"migrations applied: {', '.join(done.migrations) or 'none, all were'}")
    typer.echo(f"topics made: {', '.join(done.topics.created) or 'none, all were there'}")
    for name, changes in done.topics.altered.items():
        typer.echo(f"topic mended: {name} {changes}")
    typer.echo(f"groups that start at the first record: {', '.join(done.groups) or 'none, positions were left alone'}")
