"""`orderflow doctor` on real parts: well, half set up, and with everything away."""

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Sink
from aiosmtpd.smtp import AuthResult

from orderflow.core import database
from orderflow.core.settings import Settings, load
from orderflow.ops.doctor import run
from orderflow.ops.doctor.finding import Finding, State
from orderflow.ops.provision import positions, topics
from orderflow.ops.stack.layout import free_ports
from producers import auth

Examine = Callable[..., dict[str, Finding]]


@pytest.fixture
def examine(role_environment: dict[str, str], tmp_path: Path) -> Examine:
    """Return a function that looks at this test's shop and returns the first finding of each check."""

    def look(**environ: str) -> dict[str, Finding]:
        lines = run.examine(load(role_environment | environ, env_file=tmp_path / "none"), seconds=100)
        return {line.check: line.finding for line in reversed(lines)}

    return look


@pytest.fixture
def orderflow(role_environment: dict[str, str], tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return a function that runs the command as a person does."""

    def command(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "orderflow", "doctor", *arguments],
            cwd=tmp_path,
            env=role_environment | environ,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    return command


def test_a_shop_that_is_set_up_is_well(examine: Examine, shop: Settings) -> None:
    for group in shop.groups:
        topics.apply(shop, [group])
        positions.init(shop, group)
    with database.connect(shop.database, "api") as connection:
        auth.new_key(connection, "checkout")

    found = examine()

    # What may be odd are the tests' own brokers, the ports and the disk of this machine.
    assert {name for name, one in found.items() if one.state in (State.FAILED, State.UNKNOWN)} <= {"disk"}
    assert found["tables"].state is State.OK
    assert found["topics"].state is State.OK
    assert found["kafka"].state is State.OK
    assert found["redis"].state is State.OK
    assert found["mail server"].state is State.OK
    assert found["positions"].state is State.OK
    assert found["roles"].state is State.OK
    assert found["api keys"].what == "1 API keys"
    assert found["broker clock"].state is State.SKIPPED


def test_each_thing_that_is_not_set_up_is_named_with_its_command(examine: Examine, shop: Settings) -> None:
    topics.apply(shop, shop.groups)

    found = examine(ORDERFLOW_GROUPS="email,no_such_team:group")
    assert "no module no_such_team" in found["groups"].what

    found = examine()
    assert found["topics"].state is State.OK
    assert "group email has no position" in found["positions"].what
    assert "orderflow groups init email" in found["positions"].mend
    assert found["api keys"].mend == "`orderflow keys new NAME`"

    found = examine(ORDERFLOW_KAFKA__PARTITIONS="4")
    assert found["topics"].state is State.FAILED
    assert found["positions"].what == "because of: topics"


def test_without_its_tables_a_database_is_told_the_command(examine: Examine, settings: Settings) -> None:
    with database.connect(settings.database) as connection:
        connection.execute("DROP TABLE _yoyo_migration CASCADE")

    found = examine()

    assert found["tables"].state is State.FAILED
    # There are no topics either.
    assert found["tables"].mend == found["topics"].mend == "`orderflow provision` makes tables and topics"
    assert found["roles"].what == "because of: tables"


def test_the_policy_of_redis_is_a_failure_and_a_full_one_refuses_work(examine: Examine, redis_server: Any) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", 1024)

    found = examine(ORDERFLOW_REDIS__URL=redis_server.url)

    assert found["redis eviction"].state is State.FAILED
    assert "CONFIG SET maxmemory-policy noeviction" in found["redis eviction"].mend
    assert found["redis memory"].state is State.FAILED
    assert found["redis persistence"].state is State.OK
    assert found["redis clock"].state is State.OK


@pytest.fixture
def hanging() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_with_everything_away_each_is_named(examine: Examine, hanging: int) -> None:
    away = examine(
        ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
        ORDERFLOW_KAFKA__START_TIMEOUT_SECONDS="2",
        ORDERFLOW_REDIS__URL=f"redis://127.0.0.1:{hanging}/0",
        ORDERFLOW_DATABASE__DSN="postgresql://127.0.0.1:1/orderflow",
        ORDERFLOW_SMTP__PORT="1",
    )

    assert "connection refused" in away["kafka"].what
    assert "does not answer in time" in away["redis"].what
    assert "connection refused" in away["postgresql"].what
    assert "connection refused" in away["mail server"].what
    assert away["topics"].what == "because of: kafka"
    assert away["python"].state is State.OK


@pytest.mark.long
def test_a_service_that_hangs_does_not_hold_the_command(
    orderflow: Callable[..., "subprocess.CompletedProcess[str]"], hanging: int
) -> None:
    done = orderflow(
        "--json",
        ORDERFLOW_KAFKA__START_TIMEOUT_SECONDS="1",
        ORDERFLOW_SMTP__PORT=str(hanging),
        ORDERFLOW_SMTP__TIMEOUT_SECONDS="3600",
    )

    assert done.returncode in (78, 3), done.stderr
    states = {row["check"]: row["state"] for row in json.loads(done.stdout)["checks"]}
    assert states["mail server"] == "unknown"
    assert states["python"] == "ok"


def test_people_get_a_line_for_each_check_and_what_mends_it(
    orderflow: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = orderflow(ORDERFLOW_SMTP__PORT="1")

    assert done.returncode == 78
    lines = done.stdout.splitlines()
    assert any(line.startswith("✗ mail server") and "ORDERFLOW_SMTP__PORT" in line for line in lines)
    assert any(line.startswith("✓ redis eviction") for line in lines)
    assert any("→ `orderflow topics apply`" in line for line in lines)
    assert "failed" in lines[-1]


def test_settings_that_cannot_be_read_are_the_only_finding(
    orderflow: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = orderflow(ORDERFLOW_KAFKA__BOOTSTRAP_SERVER="127.0.0.1:1")

    assert done.returncode == 78
    assert "did you mean ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS?" in done.stdout


class Doorman:
    """Refuses every login."""

    def __call__(self, *_: Any) -> AuthResult:
        return AuthResult(success=False, handled=False)


def test_a_mail_server_that_refuses_us_is_told_apart(examine: Examine, hanging: int) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = Controller(
        Sink(),
        hostname="127.0.0.1",
        port=free_ports(1)[0],
        tls_context=context,
        authenticator=Doorman(),
        auth_require_tls=False,
    )
    server.start()
    at = {"ORDERFLOW_SMTP__HOST": "127.0.0.1", "ORDERFLOW_SMTP__PORT": str(server.port)}
    login = {"ORDERFLOW_SMTP__USERNAME": "shop", "ORDERFLOW_SMTP__PASSWORD": "hunter2"}
    try:
        assert examine(**at)["mail server"].state is State.OK
        assert "refuses our login (535)" in examine(**at, **login)["mail server"].what
        assert "nobody whom we trust" in examine(**at, ORDERFLOW_SMTP__STARTTLS="true")["mail server"].what
    finally:
        server.stop()
    assert "does not offer STARTTLS" in examine(ORDERFLOW_SMTP__STARTTLS="true")["mail server"].what
    assert "takes no login" in examine(**login)["mail server"].what
    silent = examine(ORDERFLOW_SMTP__PORT=str(hanging), ORDERFLOW_SMTP__TIMEOUT_SECONDS="0.5")
    assert "does not answer in time" in silent["mail server"].what
