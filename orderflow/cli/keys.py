"""`orderflow keys`: API keys of the order API."""

from typing import Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

app = typer.Typer(name="keys", help="API keys: shown once, stored hashed.", no_args_is_help=True)


@app.command()
def new(
    owner: Annotated[str, typer.Argument(help="Whose orders it places and sees, as in checkout.")],
    *,
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once."""
    from orderflow.core import database, settings
    from producers import auth
    from producers.store import tables_exist

    if not auth.OWNER.fullmatch(owner):
        message = "an owner has lower-case letters, digits and hyphens, a letter first, at most 64"
        raise typer.BadParameter(message)
    with database.connect(settings.load().database, "api") as connection, tables_exist():
        key = auth.new_key(connection, owner)
    if as_json:
        print_json({"owner": owner, "key": key})
        return
    typer.echo(key)
    typer.echo("Keep it: it cannot be shown again. Send it as `Authorization: Bearer KEY`.", err=True)


@app.command()
def ls(*, as_json: Json = False) -> None:
    """List the keys, without their secrets."""
    from orderflow.core import database, settings
    from producers import auth
    from producers.store import tables_exist

    with database.connect(settings.load().database, "api") as connection, tables_exist():
        keys = auth.keys(connection)
    if as_json:
        print_json(keys)
        return
    print_table(
        ("key", "owner", "made", "revoked"),
        [
            (
                key["key_id"],
                key["owner"],
                key["created_at"].isoformat(timespec="seconds"),
                key["revoked_at"].isoformat(timespec="seconds") if key["revoked_at"] else "",
            )
            for key in keys
        ],
    )


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The key's id as `keys ls` shows it.")]) -> None:
    """Revoke a key; running API processes notice within seconds."""
    from orderflow.core import database, settings
    from orderflow.core.errors import NothingMatched
    from producers import auth
    from producers.store import tables_exist

    with database.connect(settings.load().database, "api") as connection, tables_exist():
        revoked = auth.revoke(connection, key_id)
    if not revoked:
        message = f"there is no key {key_id} to revoke; `orderflow keys ls` lists them"
        raise NothingMatched(message)
    typer.echo(f"revoked {key_id}; API processes refuse it within {auth.REMEMBERED_SECONDS:.0f} s")
