"""`orderflow topics`: the source topic and the groups' own."""

from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.output import Json, print_json, print_problems, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orderflow.core.settings import Settings
    from orderflow.ops.provision.trim import Share

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


@app.command()
def trim(
    *,
    group: Groups = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Delete what the groups have resolved in their own retry and replay topics; never the source, never dead letters.

    Safe beside running workers: only records below the committed offset go.
    """
    from dataclasses import asdict

    from orderflow.core import settings
    from orderflow.ops.provision.trim import trim as run

    effective = settings.load()
    found = run(effective, _names(effective, group), dry_run=dry_run)
    if as_json:
        rows = [{**asdict(share), "state": share.state, "offsets": share.offsets} for share in found]
        print_json({"dry_run": dry_run, "partitions": rows})
        return
    going = [share for share in found if share.state == "trim"]
    if going:
        print_table(
            ("topic", "partition", "from", "up to", "would go" if dry_run else "deleted"),
            [(x.topic, x.partition, x.start, x.committed, x.offsets) for x in going],
        )
    else:
        typer.echo("nothing to delete: no record lies below a committed offset")
    _left_alone(found)


def _left_alone(found: "Sequence[Share]") -> None:
    reasons = {
        "no position": "the group has committed nothing there: run its worker first, then all it has done is known",
        "beyond the end": "the committed offset is beyond the log: the topic was made anew, a worker will mend it",
    }
    for state, reason in reasons.items():
        for topic in dict.fromkeys(share.topic for share in found if share.state == state):
            numbers = ", ".join(str(x.partition) for x in found if x.topic == topic and x.state == state)
            typer.echo(f"left alone: {topic}, partitions {numbers} ({reason})")


def _names(effective: "Settings", specs: list[str] | None) -> list[str]:
    from consumers.runtime import loading

    return [loading.group_name(spec, effective.groups) for spec in specs] if specs else loading.group_names(effective)
