"""`orderflow groups`: the consumer groups and where they stand."""

from typing import Annotated

import typer

from orderflow.cli.output import Json, print_json, print_table

app = typer.Typer(name="groups", help="The consumer groups and where they start.", no_args_is_help=True)


@app.command()
def ls(*, as_json: Json = False) -> None:
    """List the known groups: state, members, positions and lag on the source topic."""
    from dataclasses import asdict

    from consumers.runtime import loading
    from orderflow.core import settings
    from orderflow.ops.provision import positions

    effective = settings.load()
    found = positions.ls(effective, loading.group_names(effective))
    if as_json:
        print_json([{**asdict(one), "without_position": one.without_position, "lag": one.lag} for one in found])
        return
    print_table(
        ("group", "kafka group", "state", "members", f"positions on {effective.kafka.source_topic}", "lag"),
        [
            (
                one.group,
                one.group_id,
                one.state.lower(),
                len(one.members),
                f"{len(one.committed)} of {one.partitions} partitions",
                "unknown" if one.lag is None else one.lag,
            )
            for one in found
        ],
    )


@app.command()
def init(
    group: Annotated[str, typer.Argument(help="A name or module:attribute.")],
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="earliest, now, or a time as in 2026-01-31T08:00Z.", metavar="PLACE")
    ] = None,
    new_partitions: Annotated[
        bool, typer.Option("--new-partitions", help="Only partitions without a position; from their first record.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move a group that has positions already.")] = False,
    as_json: Json = False,
) -> None:
    """Choose where a stopped group starts on the source topic."""
    from consumers.runtime import loading
    from orderflow.core import settings
    from orderflow.ops.provision import positions

    if start is None and not new_partitions:
        message = "say where to start: --from earliest, --from now or --from TIME"
        raise typer.BadParameter(message)
    try:
        place = positions.parse_start(start or "earliest")
    except ValueError as error:
        message = f"--from is earliest, now or a time with its offset from UTC ({error})"
        raise typer.BadParameter(message) from None
    effective = settings.load()
    name = loading.group_name(group, effective.groups)
    offsets = positions.init(effective, name, place, new_partitions=new_partitions, overwrite=overwrite)
    if as_json:
        print_json({"group": name, "topic": effective.kafka.source_topic, "offsets": offsets})
    elif offsets:
        told = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
        typer.echo(f"group {name} starts on {effective.kafka.source_topic} at partition:offset {told}")
    else:
        typer.echo(f"group {name} has a position on every partition already")
