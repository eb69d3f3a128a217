"""Looks at this machine: the interpreter, libraries, ports, the disk."""

import json
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable
from importlib import metadata
from urllib import request

from orderflow.core import rootcheck
from orderflow.core.settings import Settings
from orderflow.ops.doctor import judge
from orderflow.ops.doctor.finding import Finding, failed, ok

_ASK_SECONDS = 2.0
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?>=(?P<least>[\d.]+)\s*$")
_DISTRIBUTION = "orderflow"


def python() -> Finding:
    """Look at the interpreter."""
    return judge.python(sys.version_info[:2], sys.platform, platform.libc_ver()[0])


def libraries() -> Finding:
    """Compare what is installed with what the product's own metadata asks for; extras are not looked at."""
    asked = [_REQUIREMENT.match(line) for line in metadata.requires(_DISTRIBUTION) or ()]
    wanted = {found["name"]: found["least"] for found in asked if found}
    return judge.libraries(wanted, {name: _version(name) for name in wanted})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def packages() -> Finding:
    """Make sure that the root packages are ours."""
    foreign = rootcheck.foreign_root_packages()
    if foreign:
        told = ", ".join(f"{name} ({place})" for name, place in foreign.items())
        return failed(f"not orderflow's own: {told}", "`pip uninstall` the distribution that brought it")
    return ok(f"{len(rootcheck.ROOT_PACKAGES)} root packages are our own")


def disk(settings: Settings) -> Finding:
    """Look at the free space of the state folder, or of the nearest folder above it that exists."""
    folder = settings.state_dir.absolute()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    return judge.disk(str(settings.state_dir), shutil.disk_usage(there).free)


def api_port(settings: Settings) -> Finding:
    """Look at who has the API's port."""
    host, number = settings.api.host, settings.api.port
    holder = _holder(host, number, "/livez", lambda text: "status" in json.loads(text))
    return judge.port("order API", number, "ORDERFLOW_API__PORT", holder)


def metrics_ports(settings: Settings) -> list[Finding]:
    """Look at who has the ports of metrics, where they are set."""
    ports = {
        "API": (settings.api.metrics_host, settings.api.metrics_port, "ORDERFLOW_API__METRICS_PORT"),
        "relay": (settings.relay.metrics_host, settings.relay.metrics_port, "ORDERFLOW_RELAY__METRICS_PORT"),
        "worker": (settings.worker.metrics_host, settings.worker.metrics_port, "ORDERFLOW_WORKER__METRICS_PORT"),
    }
    found = [
        judge.port(f"metrics of the {name}", number, setting, _holder(host, number, "/metrics", _our_metrics))
        for name, (host, number, setting) in ports.items()
        if number is not None
    ]
    return found or [ok("none is set here; `orderflow up` gives each role its own as it starts it")]


def _our_metrics(text: str) -> bool:
    return "orderflow_" in text


def _holder(host: str, number: int, path: str, ours: Callable[[str], bool]) -> str | None:
    """Return None for a free port, `ours` when our role answers there, else who has it as far as can be told."""
    target = "127.0.0.1" if host in ("0.0.0.0", "") else host  # noqa: S104 - compared, not bound
    try:
        socket.create_connection((target, number), _ASK_SECONDS).close()
    except OSError:
        return None
    try:
        # A proxy of this machine is not asked.
        opener = request.build_opener(request.ProxyHandler({}))
        with opener.open(f"http://{target}:{number}{path}", timeout=_ASK_SECONDS) as answer:
            if ours(answer.read(100_000).decode()):
                return "ours"
    except (OSError, ValueError):
        pass
    return _process_on(number) or "another program"


def _process_on(number: int) -> str | None:
    try:
        # Only with the extra `local`.
        from orderflow.ops.stack.owner import owner_of  # noqa: PLC0415
    except ImportError:
        return None
    return owner_of(number)
