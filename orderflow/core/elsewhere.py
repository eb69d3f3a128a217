"""Whether an address is a default only because `orderflow up` ran in another folder."""

from pathlib import Path

from orderflow.core.settings import LOCAL_ENV_FILE, Role


def hint(role: Role, field: str) -> str:
    """Return what to add to an error about the service that this field names; "" unless it has its default here.

    Every service's default is on this machine, and without password.
    """
    if LOCAL_ENV_FILE.is_file() or getattr(role, field) != type(role).model_fields[field].default:
        return ""
    return f" (there is no {LOCAL_ENV_FILE} in {Path.cwd()}: run this in the folder where `orderflow up` ran)"
