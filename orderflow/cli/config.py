"""`orderflow config`: the settings in force."""

from collections.abc import Iterator
from typing import Any

from orderflow.cli.output import Json, print_json, print_table

MASK = "***"


def config(*, as_json: Json = False) -> None:
    """Print every setting with the value in force and where it comes from; secrets are masked."""
    from orderflow.core import settings, sources

    effective = settings.load()
    origin = sources.sources()
    rows = {
        name: {"value": masked(value), "source": origin.get(name, sources.DEFAULT)}
        for name, value in _flat(effective, settings.PREFIX)
    }
    if as_json:
        print_json(rows)
        return
    print_table(
        ("setting", "value", "from"), [(name, _text(row["value"]), row["source"]) for name, row in rows.items()]
    )


def masked(value: Any) -> Any:
    """Return the value without its secret: of a URL only the password is hidden, of others all."""
    from urllib.parse import urlsplit

    from pydantic import SecretStr

    if not isinstance(value, SecretStr):
        return value
    try:
        parts = urlsplit(value.get_secret_value())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    if not (parts.scheme and parts.netloc) or parts.query:
        return MASK
    user = f"{parts.username or ''}:{MASK}@" if parts.password else f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"


def _flat(model: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    from pydantic import BaseModel

    for name in type(model).model_fields:
        value = getattr(model, name)
        variable = f"{prefix}{name.upper()}"
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{variable}__")
        else:
            yield variable, value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
