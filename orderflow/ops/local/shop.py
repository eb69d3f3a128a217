"""Parts and roles together: start, look after, stop."""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from orderflow.core.settings import Settings, load
from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import Role, environment_of, roles_of
from orderflow.ops.stack.layout import HOST
from orderflow.ops.stack.process import Daemon, PartFailed
from orderflow.ops.stack.stack import LocalStack
from orderflow.ops.stack.taken import Wanted, assert_free

ROLES = "roles"


class LocalShop:
    """The roles over a stack; `environment` are further `ORDERFLOW_*` variables for all of them."""

    def __init__(self, stack: LocalStack, ports: RolePorts, environment: Mapping[str, str] | None = None) -> None:
        self.stack = stack
        self.ports = ports
        self.folder = stack.state_dir / ROLES
        self.roles = roles_of(self.folder, ports)
        self._more = dict(environment or {})

    @property
    def environment(self) -> dict[str, str]:
        """What every role is given: the stack's addresses win over `environment`."""
        return self._more | self.stack.environment()

    @property
    def settings(self) -> Settings:
        """The settings as the roles see them, ports aside."""
        return load(self.environment, env_file=Path())

    @property
    def api_url(self) -> str:
        """Where orders are placed."""
        return f"http://{HOST}:{self.ports.api}"

    @property
    def daemons(self) -> list[Daemon]:
        """Every process: the parts', then the roles'."""
        return [*(part.daemon for part in self.stack.parts), *(role.daemon for role in self.roles)]

    def start(self) -> None:
        """Start every role that does not run, and wait until all are ready.

        Raises `Misconfigured` for a taken port, `PartFailed` with the end of the log for a role that dies;
        then what this call started is stopped again.
        """
        with alone(self.folder):
            asleep = [role for role in self.roles if not role.daemon.running]
            self.assert_ports_free()
            self.ports.save(self.folder)
            try:
                for role in asleep:
                    role.spawn(self.environment | environment_of(self.ports, role))
                _together(Role.wait_ready, self.roles)
            except BaseException:
                _together(Role.stop, asleep)
                raise

    def assert_ports_free(self) -> None:
        """Raise `Misconfigured` when somebody else listens where a role or part that does not run should."""
        asleep = [role for role in self.roles if not role.daemon.running]
        roles = [Wanted(role.port, role.name, role.port_option) for role in asleep]
        assert_free([*roles, *self.stack.wanted()], "orderflow up")

    def stop(self) -> None:
        """Stop every role, also those that died or hang."""
        if self.folder.is_dir():
            with alone(self.folder):
                _together(Role.stop, self.roles)

    def assert_alive(self) -> None:
        """Raise `PartFailed`, with the end of its log, when a role or a part has ended by itself."""
        for daemon in self.daemons:
            if daemon.died:
                raise daemon.failed("died")

    def keep_logs(self, folder: Path) -> None:
        """Copy every log into one folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for daemon in self.daemons:
            if daemon.log.exists():
                shutil.copyfile(daemon.log, folder / f"{daemon.name.replace(' ', '-').lower()}.log")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one start or stop at a time work on the roles of this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _together(action: Callable[[Role], None], roles: list[Role]) -> None:
    """Act on all at once. Raises what the first of them raised, a death before a silence."""
    if not roles:
        return
    pool = ThreadPoolExecutor(len(roles))
    try:
        done = [pool.submit(action, role) for role in roles]
        wait(done)
    finally:
        # An interrupt must not wait for roles that are about to be stopped.
        pool.shutdown(wait=False)
    errors = [error for one in done if (error := one.exception()) is not None]
    if errors:
        raise next((error for error in errors if isinstance(error, PartFailed)), errors[0])
