import json
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import httpx
import psutil
import pytest

from orderflow.ops.samples.shop import orders
from orderflow.ops.stack.layout import free_ports, is_free

pytestmark = [pytest.mark.usefixtures("local_stack"), pytest.mark.timeout(400)]

Start = Callable[..., Popen[str]]
SECONDS = 300.0


@pytest.fixture
def ports() -> dict[str, int]:
    """Free ports for everything; the broker's controller and the further metrics follow the first."""
    names = ("--api-port", "--metrics-port", "--kafka-port", "--redis-port", "--postgres-port", "--smtp-port")
    while True:
        chosen = dict(zip(names, free_ports(len(names)), strict=True))
        followers = [chosen["--kafka-port"] + 1, *(chosen["--metrics-port"] + more for more in (1, 2, 3))]
        if all(is_free(port) for port in followers) and not {*followers} & {*chosen.values()}:
            return chosen


@pytest.mark.long(whole=True)
def test_up_leaves_a_shop_running_and_down_ends_it_all(
    orderflow: Start,
    ports: dict[str, int],
    left_running: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    progress: list[str] = []

    def run(*verb: str) -> str:
        process = orderflow(*verb)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        progress.append(err)
        return out

    def pid_of(part: str) -> int:
        return int(json.loads((tmp_path / ".orderflow" / part / "process.json").read_text())["pid"])

    told = run("up", *(text for name, port in ports.items() for text in (name, str(port))))
    assert told.startswith("The shop runs.")
    assert "starting Kafka, Redis, PostgreSQL and a mail sink\n" in progress[0]
    key = told.partition("KEY=")[2].split()[0]
    assert key.startswith("ofk_")
    before = {part: pid_of(part) for part in ("kafka-1", "redis", "roles/api", "roles/relay", "roles/audit")}

    again = run("up")
    assert again.startswith("The shop ran already.")
    assert "KEY=YOUR_KEY" in again
    assert "orderflow keys new" in again
    assert {part: pid_of(part) for part in before} == before

    listed = {one["name"]: one for one in json.loads(run("stack", "status", "--json"))}
    assert listed["API"]["port"] == ports["--api-port"]
    for name, part in (("Kafka", "kafka-1"), ("API", "roles/api"), ("audit worker", "roles/audit")):
        assert (listed[name]["state"], listed[name]["pid"]) == ("running", before[part])

    order = next(one for one in orders() if one.odd is None)
    answer = httpx.post(
        f"http://127.0.0.1:{ports['--api-port']}/v1/orders",
        headers={"Authorization": f"Bearer {key}"},
        json=order.model_dump(mode="json", include={"customer_id", "currency", "lines", "channel"}),
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text

    # Down also ends what is left when parts of it have died.
    for part in ("kafka-1", "roles/email"):
        psutil.Process(pid_of(part)).kill()
    assert run("down").startswith("Stopped")
    assert left_running() == []
    assert all(is_free(port) for port in ports.values())
    assert run("down").startswith("Nothing runs here")
    assert run("down", "--wipe").startswith("Nothing ran here")
    assert not (tmp_path / ".orderflow").exists()


@pytest.mark.parametrize(("option", "owner"), [("--redis-port", "Redis"), ("--api-port", "API")])
def test_a_taken_port_is_named_before_anything_starts(
    orderflow: Start, ports: dict[str, int], tmp_path: Path, option: str, owner: str
) -> None:
    taken = ports[option]
    with socket.create_server(("127.0.0.1", taken)):
        process = orderflow("up", *(text for name, port in ports.items() for text in (name, str(port))))
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 78
    assert f"port {taken} for {owner} is taken by" in err
    assert option in err
    assert not list(tmp_path.rglob("process.json"))
