"""`orderflow up`, `orderflow down` and `orderflow demo`: the whole shop on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from orderflow.ops.local.up import Brought

_NOT_SO = "Default: as last time, else"


def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs of every process and say where.")] = False,
    as_json: Json = False,
) -> None:
    """Run a whole shop once, on free ports: 200 orders, some odd; exit 0 if its books balance."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from orderflow.ops.demo import summary
    from orderflow.ops.demo.display import console_for, display
    from orderflow.ops.demo.run import run

    console = console_for(json=as_json)
    with display(console) as shown:
        result = run(shown, keep=keep)
    if as_json:
        print_json(summary.as_json(result))
    else:
        summary.show(result, console)
    if not result.right:
        raise typer.Exit(1)


def up(
    *,
    api_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 8080.", min=1, max=65_535)] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help=f"Of the first worker; the others and the relay follow it. {_NOT_SO} 9101.")
    ] = None,
    kafka_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 9092.", min=1, max=65_530)] = None,
    redis_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 6379.", min=1, max=65_535)] = None,
    postgres_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 5432.", min=1, max=65_535)] = None,
    smtp_port: Annotated[int | None, typer.Option(help=f"{_NOT_SO} 1025.", min=1, max=65_535)] = None,
) -> None:
    """Start the whole shop on this machine and leave it running: parts, API, relay, workers, stock, customers."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from orderflow.ops.local.ports import RolePorts
    from orderflow.ops.local.shop import ROLES
    from orderflow.ops.local.up import up as bring_up
    from orderflow.ops.stack.layout import Layout
    from orderflow.ops.stack.progress import reporter

    folder = _state_dir()
    layout = Layout.for_people(
        Layout.load(folder), kafka=kafka_port, redis=redis_port, postgres=postgres_port, smtp=smtp_port
    )
    ports = RolePorts.for_people(RolePorts.load(folder / ROLES), api=api_port, metrics=metrics_port)
    with reporter() as progress:
        brought = bring_up(folder, layout, ports, progress)
    _print_shop(brought)


def down(
    *,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove all that it stored, too.")] = False,
) -> None:
    """Stop everything that `orderflow up` started; nothing is left running."""
    from orderflow.ops.stack.extra import require_extra

    require_extra()
    from orderflow.ops.local.up import down as bring_down

    folder = _state_dir()
    ended = bring_down(folder, wipe=wipe)
    if ended.wiped:
        typer.echo(f"{'Stopped' if ended.stopped else 'Nothing ran here'}, and everything that it stored was removed.")
    elif not ended.stopped:
        typer.echo(f"Nothing runs here, in {folder.absolute()}; {_first()}`orderflow up` starts it.")
    else:
        typer.echo(f"Stopped; {_first()}`orderflow up` finds its orders again, `orderflow down --wipe` removes them.")


def _first() -> str:
    """Return what comes before a command in a shell that does not find it."""
    from orderflow.ops.local.activate import activation

    line = activation()
    return f"after `{line}`, " if line else ""


def _print_shop(brought: "Brought") -> None:
    from orderflow.ops.local.activate import activation
    from orderflow.ops.samples.shop import addresses

    shop = brought.shop
    typer.echo("The shop ran already.\n" if brought.ran else "The shop runs.\n")
    rows = [
        *((role.daemon, role.url.removeprefix("http://").removesuffix("/readyz")) for role in shop.roles),
        *((part.daemon, f"127.0.0.1:{part.port}") for part in shop.stack.parts),
    ]
    print_table(
        ("what", "where", "pid", "log"),
        [(daemon.name, where, daemon.pid or "", _near(daemon.log)) for daemon, where in rows],
    )
    if brought.key is not None:
        typer.echo("\nKEY below is its API key, shown this once.")
    typer.echo("\n`orderflow keys new NAME` makes another API key.")
    customer = next(iter(addresses()))
    line = activation()
    first = f"  {line}\n" if line else ""
    typer.echo(
        "\nNext\n\n"
        f"{first}"
        f"  KEY={brought.key or 'YOUR_KEY'}\n"
        f"  curl -sS {shop.api_url}/v1/orders \\\n"
        """    -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n"""
        f"""    -d '{{"customer_id": "{customer}", "currency": "GBP",\n"""
        """         "lines": [{"sku": "TEA-SENCHA-100", "quantity": 2, "unit_price": "10.66"}]}'\n\n"""
        "  orderflow mail ls      the confirmation, a moment later\n"
        "  orderflow groups ls    where each group stands\n\n"
        "`orderflow down` stops it all."
    )


def _near(path: Path) -> str:
    """Return a path as short as it can be written from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _state_dir() -> Path:
    from orderflow.core import settings

    # Not from the local env file: it may be the very thing that is broken.
    return settings.load(env_file=Path()).state_dir
