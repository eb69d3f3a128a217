"""docker-compose.yml as Compose reads it, with its variables filled in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from consumers import GROUPS
from orderflow.core.settings import PREFIX, Settings, load
from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import roles_of

PROJECT = Path(__file__).resolve().parents[3]
SECRETS = {"POSTGRES_PASSWORD": "for-postgres-0123", "REDIS_PASSWORD": "for-redis-0123"}
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")
FIXED = RolePorts.fixed()


def filled_in(text: str, environment: Mapping[str, str]) -> str:
    """Do what Compose does with `${NAME:-default}` and `${NAME:?message}`."""

    def value(found: re.Match[str]) -> str:
        if given := environment.get(found["name"]):
            return given
        assert found["kind"] == "-", f"{found['name']} is not set: {found['rest']}"
        return found["rest"]

    return VARIABLE.sub(value, text)


TEXT = (PROJECT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(filled_in(TEXT, SECRETS))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = {f"{group}-worker": group for group in GROUPS}
PARTS = {"kafka", "redis", "postgres", "mailpit"}
RUNNING = {"order-api", "relay", *WORKERS}
ROLES = {"provision", *RUNNING}
READY = dict(zip(("order-api", "relay", *WORKERS), roles_of(Path("roles"), FIXED), strict=True))


def ours(service: str) -> dict[str, str]:
    return {name: value for name, value in SERVICES[service]["environment"].items() if name.startswith(PREFIX)}


def settings_of(service: str) -> Settings:
    return load(ours(service), env_file=Path())


def published(service: str) -> dict[int, tuple[str, int]]:
    """Return container port -> host address and port."""
    split = [entry.rsplit(":", 2) for entry in SERVICES[service].get("ports", [])]
    return {int(inside): (address, int(outside)) for address, outside, inside in split}


def seconds(text: str) -> float:
    assert text.endswith("s"), text
    return float(text.removesuffix("s"))
