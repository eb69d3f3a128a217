"""Who listens on a port, in words that lead a person to it."""

from collections.abc import Sequence
from pathlib import Path

import psutil

from orderflow.ops.stack.process import RECORD

_ROLES = {"api": "API", "relay": "relay", "worker": "worker"}
_PARTS = {"redis": "Redis", "postgres": "PostgreSQL", "mail": "mail sink"}


def owner_of(port: int) -> str | None:
    """Return who listens on a port: ours with the folder where it was started, others as `name (pid n)`.

    None where the system does not tell.
    """
    try:
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                process = psutil.Process(connection.pid)
                return f"{_ours(process) or process.name()} (pid {connection.pid})"
    except psutil.Error:
        return None
    return None


def _ours(process: psutil.Process) -> str | None:
    try:
        argv, folder = process.cmdline(), Path(process.cwd())
    except psutil.Error:
        return None
    what = role_of(argv) or part_at(folder)
    return f"an orderflow {what} started in {started_in(folder)}" if what else None


def role_of(argv: Sequence[str]) -> str | None:
    """Return the role that a command line runs, as `API` or `email worker`; None when it is none of ours."""
    for place, word in enumerate(argv[:-1]):
        module = word == "orderflow" and place > 0 and argv[place - 1] == "-m"
        script = place < 2 and "/" in word and Path(word).name == "orderflow"  # noqa: PLR2004 - python, then its script
        if module or script:
            verb, *rest = argv[place + 1 :]
            name = _ROLES.get(verb)
            return f"{rest[0]} {name}" if verb == "worker" and rest else name
    return None


def part_at(folder: Path) -> str | None:
    """Return the part whose process works in a folder, known by its record; None when it is none of ours."""
    if not (folder / RECORD).is_file():
        return None
    return "Kafka" if folder.name.startswith("kafka") else _PARTS.get(folder.name)


def started_in(folder: Path) -> Path:
    """Return the folder where `orderflow up` ran for a process that works in `folder`; that itself for another."""
    state = next((above for above in (folder, *folder.parents) if (above / "stack.json").is_file()), None)
    if state is None:
        return folder
    return state.parent if state.name == ".orderflow" else state
