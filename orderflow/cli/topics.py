"""`orderflow topics`: the source topic and the groups' own."""

from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_problems

if TYPE_CHECKING:
    from orderflow.core.settings import Settings

app = typer.Typer(name="topics", help="The topics in Kafka.", no_args_is_help=True)

Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", help="Only this group, a name or module:attribute; may be repeated. Default: the known groups."
    ),
]


@app.command()
def apply(
    *,
    group: Groups = None,
    add_partitions: Annotated[
        bool, typer.Option("--add-partitions", help="Grow the groups' own topics to the source's partition count.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make missing topics and mend settings. Never deletes, never sets a group's position."""
    from dataclasses import asdict

    from orderflow.core import settings
    from orderflow.ops.provision import topics

    effective = settings.load()
    done = topics.apply(effective, _names(effective, group), add_partitions=add_partitions)
    if as_json:
        print_json(asdict(done))
        return
    typer.echo(f"topics made: {', '.join(done.created) or 'none, all were there'}")
    for name in done.grown:
        typer.echo(f"partitions added: {name}")
    for name, changes in done.altered.items():
        typer.echo(f"settings mended: {name} " + " ".join(f"{key}={value}" for key, value in changes.items()))


@app.command()
def check(*, group: Groups = None, as_json: Json = False) -> None:
    """Show what is missing or different; exit 78 if a worker would refuse to start on it."""
    from orderflow.core import settings
    from orderflow.ops.provision import topics

    effective = settings.load()
    problems = topics.check(effective, _names(effective, group))
    print_problems(problems, as_json=as_json, nothing="all topics are as they must be")


def _names(effective: "Settings", specs: list[str] | None) -> list[str]:
    from consumers.runtime import loading

    return [loading.group_name(spec) for spec in specs] if specs else loading.group_names(effective)
