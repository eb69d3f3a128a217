"""`orderflow mail`: what the local mail sink received."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from datetime import datetime

    from orderflow.ops.stack.inbox import Inbox

app = typer.Typer(name="mail", help="The mails that the local mail sink received.", no_args_is_help=True)


@app.command()
def ls(
    to: Annotated[str | None, typer.Option("--to", help="Only mails to this address.")] = None,
    *,
    refused: Annotated[bool, typer.Option("--refused", help="The recipients that were refused, instead.")] = False,
    as_json: Json = False,
) -> None:
    """List mails in the order of arrival, at local time: that of the day, with the date for one of another day."""
    from dataclasses import asdict

    from orderflow.core import clock

    inbox = _inbox()
    if refused:
        refusals = [item for item in inbox.refusals() if to is None or item.recipient == to.lower()]
        if as_json:
            print_json([asdict(item) for item in refusals])
        else:
            rows = [(item.at.isoformat(timespec="seconds"), item.code, item.recipient) for item in refusals]
            print_table(("at", "code", "recipient"), rows)
        return
    mails = [mail for mail in inbox.mails() if to is None or to.lower() in map(str.lower, mail.recipients)]
    if as_json:
        print_json([asdict(mail) for mail in mails])
        return
    print_table(
        ("number", "received", "to", "subject"),
        [
            (mail.number, short_time(mail.received_at, clock.utc_now()), ", ".join(mail.recipients), mail.subject)
            for mail in mails
        ],
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Its number in `mail ls`, or its Message-ID.")], *, as_json: Json = False
) -> None:
    """Show one mail; exit 4 when there is none."""
    from dataclasses import asdict

    mail = _inbox().find(name)
    if as_json:
        print_json(asdict(mail))
        return
    print_table(
        ("", ""),
        [
            ("number", mail.number),
            ("received", mail.received_at.isoformat(timespec="seconds")),
            ("from", mail.sender),
            ("to", ", ".join(mail.recipients)),
            ("message id", mail.message_id),
            ("subject", mail.subject),
        ],
    )
    typer.echo(f"\n{mail.text}")


def short_time(at: "datetime", now: "datetime") -> str:
    """Return an aware time in this machine's zone: `14:03:59` of today, `2026-11-28 14:03` of another day."""
    local = at.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def _inbox() -> "Inbox":
    from orderflow.core import settings
    from orderflow.core.errors import NothingMatched
    from orderflow.ops.stack.inbox import Inbox

    folder = settings.load(env_file=Path()).state_dir / "mail"
    if not folder.is_dir():
        message = f"no mail sink ran in {folder.parent.absolute()}: run this in the folder where `orderflow up` ran"
        raise NothingMatched(message)
    return Inbox(folder)
