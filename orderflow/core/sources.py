"""Where each setting comes from, and what a mistyped name may have been meant to be."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values
from pydantic import BaseModel

from orderflow.core.settings import DELIMITER, LOCAL_ENV_FILE, PREFIX, Settings

DEFAULT = "default"
ENVIRONMENT = "environment"
_FILE = "_FILE"


def sources(environ: Mapping[str, str] | None = None, env_file: Path = LOCAL_ENV_FILE) -> dict[str, str]:
    """Return each variable's source as `settings.load` takes it: environment, the local file, or a secret's file.

    A name that is not in the answer has its default.
    """
    local = {name for name, value in dotenv_values(env_file).items() if value is not None} if env_file.is_file() else ()
    given = dict.fromkeys((name.upper() for name in local), str(env_file))
    given |= dict.fromkeys((name.upper() for name in (os.environ if environ is None else environ)), ENVIRONMENT)
    ours = {name: source for name, source in given.items() if name.startswith(PREFIX)}
    files = {name.removesuffix(_FILE): f"{name} ({source})" for name, source in ours.items() if name.endswith(_FILE)}
    return {name: source for name, source in ours.items() if not name.endswith(_FILE)} | files


def known(model: type[BaseModel] = Settings, prefix: str = PREFIX) -> list[str]:
    """Return the name of every variable that is a setting."""
    names: list[str] = []
    for field, info in model.model_fields.items():
        role = info.annotation
        if isinstance(role, type) and issubclass(role, BaseModel):
            names += known(role, f"{prefix}{field.upper()}{DELIMITER}")
        else:
            names.append(f"{prefix}{field.upper()}")
    return names


def meant(variable: str) -> str | None:
    """Return the setting that a mistyped name is closest to; None when nothing is close."""
    close = difflib.get_close_matches(variable, known(), n=1, cutoff=0.75)
    return close[0] if close else None
