"""What the roles of a state folder do now, in the words of the parts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import Role, roles_of
from orderflow.ops.local.shop import ROLES
from orderflow.ops.stack.stack import PartStatus


def roles_status(state_dir: Path) -> list[PartStatus]:
    """Ask every role that was started from this folder; none of them when none runs or died.

    Raises `Misconfigured` when the record of their ports cannot be understood.
    """
    folder = state_dir.absolute() / ROLES
    ports = RolePorts.load(folder)
    roles = [] if ports is None else roles_of(folder, ports)
    if not any(role.daemon.running or role.daemon.died for role in roles):
        return []
    with ThreadPoolExecutor(len(roles)) as pool:
        return list(pool.map(_status, roles))


def _status(role: Role) -> PartStatus:
    daemon = role.daemon
    if daemon.died:
        return PartStatus(role.name, "dead", role.port, None, daemon.log_end(), daemon.log)
    pid = daemon.pid
    if pid is None:
        return PartStatus(role.name, "stopped", role.port, None, "", daemon.log)
    if role.answer() is None:
        return PartStatus(role.name, "silent", role.port, pid, "is not ready", daemon.log)
    return PartStatus(role.name, "running", role.port, pid, "is ready", daemon.log)
