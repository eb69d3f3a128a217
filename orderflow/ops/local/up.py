"""`orderflow up` and `orderflow down`: the whole shop, left running on known ports, and its end."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orderflow.core import database
from orderflow.core.errors import Misconfigured, Refused
from orderflow.core.settings import PREFIX, Settings
from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import roles_of
from orderflow.ops.local.shop import ROLES, LocalShop
from orderflow.ops.provision.provision import provision
from orderflow.ops.samples.shop import Seeded, seed
from orderflow.ops.stack.layout import Layout, Options, Ports
from orderflow.ops.stack.progress import Reporter
from orderflow.ops.stack.stack import PARTS, LocalStack
from producers import auth

OWNER = "shop"
"""Whose orders the first API key places."""

# The shop runs the groups of this repository; where the rest goes, the stack says.
_NOT_PASSED_ON = frozenset({f"{PREFIX}GROUPS", f"{PREFIX}STATE_DIR"})


@dataclass(frozen=True, slots=True)
class Brought:
    """What runs now: whether it `ran` before, what was seeded, and the API key if this call made the first one."""

    shop: LocalShop
    ran: bool
    seeded: Seeded
    key: str | None


def up(state_dir: Path, layout: Layout, ports: RolePorts, progress: Reporter) -> Brought:
    """Start what does not run: parts, tables and topics, roles; seed a shop that is empty.

    Raises `Misconfigured` for a taken port, `Refused` when roles run on other ports, `PartFailed` with
    the end of its log for a part or a role that dies; then what this call started is stopped again.
    """
    stack = LocalStack(state_dir, layout, progress)
    shop = LocalShop(stack, ports, passed_on(os.environ))
    _refuse_other_ports(shop)
    shop.assert_ports_free()
    stack_ran = all(part.daemon.running for part in stack.parts)
    ran = stack_ran and all(role.daemon.running for role in shop.roles)
    progress.step(f"{_asking(ran=stack_ran)} {PARTS}")
    stack.up()
    try:
        progress.step("making tables and topics")
        provision(shop.settings)
        seeded = seed(shop.settings)
        progress.step(f"{_asking(ran=ran)} API, relay and workers")
        shop.start()
        key = _first_key(shop.settings)
    except BaseException:
        if not stack_ran:
            shop.stop()
            stack.down()
        raise
    return Brought(shop, ran, seeded, key)


@dataclass(frozen=True, slots=True)
class Ended:
    """What `down` did: whether anything was `stopped`, and whether anything was there to be `wiped` and was."""

    stopped: bool
    wiped: bool


def down(state_dir: Path, *, wipe: bool = False) -> Ended:
    """Stop every role and part, also those that died or hang.

    `wipe` removes all that they stored too. Raises `Misconfigured` for a state folder that cannot be
    understood, unless it is wiped.
    """
    folder = state_dir / ROLES
    # Ports do not matter to stop: a role is known by the record in its folder.
    try:
        layout = Layout.load(state_dir)
    except Misconfigured:
        if not wipe:
            raise
        layout = Layout(Ports.fixed(brokers=3), Options(brokers=3))
    if layout is None and not folder.is_dir():
        return Ended(stopped=False, wiped=False)
    stack = LocalStack(state_dir, layout)
    shop = LocalShop(stack, RolePorts.fixed())
    found = any(daemon.running or daemon.died for daemon in shop.daemons)
    shop.stop()
    if wipe:
        shutil.rmtree(folder, ignore_errors=True)
    stack.down(wipe=wipe)
    return Ended(stopped=found, wiped=wipe)


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of this environment that hold for the roles too."""
    return {name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in _NOT_PASSED_ON}


def _refuse_other_ports(shop: LocalShop) -> None:
    was = RolePorts.load(shop.folder)
    if was is None or was == shop.ports:
        return
    running = [role.name for role in roles_of(shop.folder, was) if role.daemon.running]
    if running:
        raise Refused(f"{', '.join(running)} run on other ports; `orderflow down` them first")


def _asking(*, ran: bool) -> str:
    return "asking" if ran else "starting"


def _first_key(settings: Settings) -> str | None:
    with database.connect(settings.database, "api") as connection:
        return None if auth.keys(connection) else auth.new_key(connection, OWNER)
