"""`orderflow schemas`: look at the locked schemas, check them, add one. Needs no server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from schemas.catalog import Catalog, SchemaEntry
    from schemas.lint import Problem

app = typer.Typer(name="schemas", help="The events' schemas and the lock of their ids.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(*, as_json: Json = False) -> None:
    """Check the lock, the lint rules, FULL_TRANSITIVE compatibility and the models; exit 1 with what is wrong."""
    from schemas.catalog import Catalog
    from schemas.evolution import check as problems_of

    catalog = Catalog.load()
    problems = problems_of(catalog)
    if as_json:
        _print_json({"schemas": len(catalog.entries), "problems": [_as_row(problem) for problem in problems]})
    else:
        _list(problems)
        if not problems:
            typer.echo(f"{len(catalog.entries)} schemas of {len(catalog.subjects)} event types: nothing to mend")
    if problems:
        raise typer.Exit(1)


@app.command()
def add(file: Annotated[Path, typer.Argument(help="The new schema, an .avsc file.")], *, as_json: Json = False) -> None:
    """Give a new schema the next id, if it is valid and compatible with every former version; else exit 1."""
    from orderflow.core.errors import OrderflowError
    from schemas import lock
    from schemas.catalog import Catalog
    from schemas.evolution import review

    catalog = Catalog.load()
    try:
        content = file.read_bytes()
        entry = lock.draft(catalog, content)
        problems = review(Catalog((*catalog.entries, entry), catalog.root), entry)
        if not problems:
            lock.append(catalog, entry, content)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}; `schemas add` needs to read the file and to write schemas/"
        raise OrderflowError(message) from None
    if as_json:
        added = None if problems else _as_json(entry)
        _print_json({"added": added, "problems": [_as_row(problem) for problem in problems]})
    else:
        _list(problems)
        if not problems:
            typer.echo(f"{entry} is id {entry.id} now: schemas/{entry.file}")
            typer.echo(
                "next: its model in schemas/events.py, then `orderflow schemas check`; commit both with the lock"
            )
    if problems:
        raise typer.Exit(1)


@app.command("ls")
def list_(*, as_json: Json = False) -> None:
    """List every locked schema."""
    from schemas.catalog import Catalog

    catalog = Catalog.load()
    if as_json:
        _print_json([_as_json(entry) for entry in catalog.entries])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "event", "version", "fields", "sha256")
    for entry in catalog.entries:
        newest = " newest" if catalog.newest(entry.subject) is entry else ""
        fields = str(len(entry.document["fields"]))
        table.add_row(str(entry.id), entry.subject, f"{entry.version}{newest}", fields, entry.sha256[:12])
    Console().print(table)


@app.command()
def show(
    schema: Annotated[str, typer.Argument(metavar="ID|NAME[@VERSION]", help="As in 100001 or OrderCreated@1.")],
    *,
    as_json: Json = False,
) -> None:
    """Show one schema, the newest version unless told otherwise. The namespace may be left out."""
    from schemas.catalog import Catalog

    entry = _find(Catalog.load(), schema)
    if as_json:
        _print_json({**_as_json(entry), "schema": entry.document})
        return
    from rich.console import Console
    from rich.table import Table

    typer.echo(f"{entry}  id {entry.id}  schemas/{entry.file}")
    typer.echo(entry.document.get("doc", ""))
    table = Table("field", "type", "default", "meaning")
    for field in entry.document["fields"]:
        default = json.dumps(field["default"]) if "default" in field else ""
        table.add_row(field["name"], _type(field["type"]), default, field.get("doc", ""))
    Console().print(table)


def _find(catalog: "Catalog", wanted: str) -> "SchemaEntry":
    from orderflow.core.errors import NothingMatched

    name, _, version = wanted.partition("@")
    found = [
        entry
        for entry in catalog.entries
        if wanted == str(entry.id)
        or (name in (entry.subject, entry.subject.rpartition(".")[2]) and version in ("", str(entry.version)))
    ]
    if not found:
        message = f"no schema {wanted} in the lock; `orderflow schemas ls` lists them"
        raise NothingMatched(message)
    if len({entry.subject for entry in found}) > 1:
        message = f"{name} is ambiguous: {', '.join(sorted({entry.subject for entry in found}))}"
        raise NothingMatched(message)
    return max(found, key=lambda entry: entry.version)


def _type(node: object) -> str:
    match node:
        case list():
            return " or ".join(_type(branch) for branch in node)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "record", "name": name, "fields": list() as fields}:
            inner = ", ".join(f"{field['name']} {_type(field['type'])}" for field in fields)
            return f"{name}({inner})"
        case {"logicalType": str(kind), **rest}:
            return f"{kind}({rest['precision']},{rest['scale']})" if kind == "decimal" else kind
        case {"type": inner}:
            return _type(inner)
    return str(node)


def _list(problems: "list[Problem]") -> None:
    for problem in problems:
        typer.echo(f"{problem.where}: {problem.rule}: {problem.message}")


def _as_row(problem: "Problem") -> dict[str, str]:
    return {"where": problem.where, "rule": problem.rule, "message": problem.message}


def _as_json(entry: "SchemaEntry") -> dict[str, str | int]:
    return {
        "id": entry.id,
        "subject": entry.subject,
        "version": entry.version,
        "file": entry.file,
        "sha256": entry.sha256,
    }


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
