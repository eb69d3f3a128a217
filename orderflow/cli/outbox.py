"""`orderflow outbox`: events that Kafka does not have yet."""

from typing import Annotated
from uuid import UUID

import typer

from orderflow.cli.output import Json, print_json, print_table

app = typer.Typer(name="outbox", help="Events that wait for the relay, and those Kafka refused.", no_args_is_help=True)


@app.command()
def ls(
    *,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="Only what Kafka refused for itself.")] = False,
    limit: Annotated[int, typer.Option(help="Rows at most.", min=1)] = 100,
    as_json: Json = False,
) -> None:
    """List unpublished rows, oldest first."""
    from orderflow.core import database, settings
    from producers import outbox
    from producers.store import tables_exist

    with database.connect(settings.load().database, "api") as connection, tables_exist():
        rows = outbox.unpublished(connection, quarantined_only=quarantined, limit=limit)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("event", "state", "age s", "tries", "last error"),
        [
            (
                row["event_id"],
                "quarantined" if row["quarantined_at"] else "waiting",
                row["age_seconds"],
                row["attempts"],
                row["last_error"] or "",
            )
            for row in rows
        ],
    )


@app.command()
def requeue(
    event_ids: Annotated[list[UUID] | None, typer.Argument(help="Event ids as `outbox ls` shows them.")] = None,
    *,
    all_rows: Annotated[bool, typer.Option("--all", help="Every quarantined row.")] = False,
    as_json: Json = False,
) -> None:
    """Give quarantined rows back to the relay, after the cause is mended."""
    from orderflow.core import database, settings
    from orderflow.core.errors import NothingMatched
    from producers import outbox
    from producers.store import tables_exist

    if bool(event_ids) == all_rows:
        message = "name event ids, or say --all"
        raise typer.BadParameter(message)
    with database.connect(settings.load().database, "api") as connection, tables_exist():
        requeued = outbox.requeue(connection, None if all_rows else event_ids)
    if not requeued:
        message = "no quarantined row matched; `orderflow outbox ls --quarantined` lists them"
        raise NothingMatched(message)
    if as_json:
        print_json({"requeued": requeued})
    else:
        typer.echo(f"requeued {len(requeued)}: {', '.join(requeued)}")
