"""One role of the product as a background process: what is run, and when it is ready."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from orderflow.ops.local.ports import RolePorts
from orderflow.ops.stack.layout import HOST
from orderflow.ops.stack.part import plain_environment, wait_for_answer
from orderflow.ops.stack.process import Command, Daemon

READY_SECONDS = 120.0
# A worker ends its handlers, then commits; its own watchdog ends it after 20 s.
STOP_SECONDS = 25.0
_ASK_SECONDS = 2.0


class Role:
    """A process of `orderflow VERB`, its log and its record in a folder of its own.

    It is ready when `url` answers 200 with `sign` in the text.
    """

    def __init__(self, name: str, folder: Path, verb: Sequence[str], url: str, sign: str = "") -> None:
        self.name = name
        self.folder = folder
        self.url = url
        self.daemon = Daemon(name, folder)
        self._verb = verb
        self._sign = sign

    @property
    def port(self) -> int:
        """The port of its URL."""
        return httpx.URL(self.url).port or 0

    @property
    def port_option(self) -> str:
        """The option of `orderflow up` that moves its port."""
        return "--api-port" if self.name == "API" else "--metrics-port"

    def spawn(self, environment: Mapping[str, str]) -> None:
        """Start it with these `ORDERFLOW_*` variables, without waiting."""
        python_path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "orderflow", *self._verb]
        # Its own folder as working folder: no `.orderflow/env` is read there but what is handed in.
        self.daemon.spawn(
            Command(argv, plain_environment(PYTHONSAFEPATH="1", **python_path, **environment), self.folder)
        )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it is ready. Raises `PartFailed` with the end of its log when it dies, or after `seconds`."""
        wait_for_answer(self.daemon, self.answer, seconds)

    def answer(self) -> str | None:
        """Ask it: return the answer's text, or None while it is not ready."""
        # Plain HTTP on this machine: reading the trusted authorities took 70 ms of CPU at every look.
        look = httpx.Client(timeout=_ASK_SECONDS, trust_env=False, verify=False)  # noqa: S501
        try:
            with look:
                told = look.get(self.url)
        except httpx.HTTPError:
            return None
        return told.text if told.is_success and self._sign in told.text else None

    def stop(self) -> None:
        """End it in good order; no error when it is dead."""
        self.daemon.stop(STOP_SECONDS)


def roles_of(folder: Path, ports: RolePorts) -> list[Role]:
    """Return the API, the relay, and a worker of each group."""
    api = Role("API", folder / "api", ["api"], f"http://{HOST}:{ports.api}/readyz")
    relay = Role("relay", folder / "relay", ["relay"], f"http://{HOST}:{ports.relay}/metrics")
    workers = [
        Role(
            f"{group} worker",
            folder / group,
            ["worker", group],
            f"http://{HOST}:{port}/metrics",
            # Not before it was given its partitions.
            sign='kind="assigned"',
        )
        for group, port in ports.workers.items()
    ]
    return [api, relay, *workers]


def environment_of(ports: RolePorts, role: Role) -> dict[str, str]:
    """Return the variables that put this role on its port."""
    if role.name == "API":
        return {"ORDERFLOW_API__HOST": HOST, "ORDERFLOW_API__PORT": str(ports.api)}
    kind = "RELAY" if role.name == "relay" else "WORKER"
    return {f"ORDERFLOW_{kind}__METRICS_HOST": HOST, f"ORDERFLOW_{kind}__METRICS_PORT": str(role.port)}
