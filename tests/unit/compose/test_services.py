"""Which services there are, what they run, and that Compose itself accepts the file."""

import json
import os
import shutil
import subprocess

import pytest
import typer.main

from orderflow.cli import app
from tests.unit.compose.composefile import PARTS, PROJECT, ROLES, SECRETS, SERVICES, WORKERS


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


def test_compose_itself_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("needs the docker client with its compose plugin; no engine")
    command = [docker, "compose", "--file", str(PROJECT / "docker-compose.yml"), "config", "--format", "json"]

    done = subprocess.run(command, env=os.environ | SECRETS, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(SERVICES)
