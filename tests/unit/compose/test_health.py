"""When a service is healthy, what it waits for, how long it has to stop."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orderflow.ops.local.roles import STOP_SECONDS
from producers import relay_process, server
from tests.unit.compose.composefile import PARTS, READY, ROLES, RUNNING, SERVICES, seconds, settings_of


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
    settings = settings_of(service)
    budgets = (
        settings.worker.stop_budget_seconds,
        settings.api.stop_budget_seconds + server._GRACE_SECONDS,
        relay_process.DRAIN_SECONDS + 5,
    )

    assert seconds(SERVICES[service]["stop_grace_period"]) == STOP_SECONDS
    assert max(budgets) < STOP_SECONDS
