"""The order API as a process: its start, its outages, its end."""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import Connection, sql
from psycopg_pool import ConnectionPool

from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import free_ports
from tests.stacks.interface import Stack

if TYPE_CHECKING:
    import subprocess

Start = Callable[..., "subprocess.Popen[bytes]"]
ORDER: dict[str, Any] = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}


@contextmanager
def ready(port: int) -> Iterator[httpx.Client]:
    deadline = time.monotonic() + 60
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        while not is_ready(client):
            assert time.monotonic() < deadline, "the API does not get ready"
            time.sleep(0.1)
        yield client


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_orders_are_taken_while_kafka_is_away_and_sigterm_ends_with_code_0(
    shop_tables: Settings, start_role: Start, api_key: str
) -> None:
    del shop_tables
    port, metrics = free_ports(2)
    process = start_role(
        "api",
        ORDERFLOW_API__PORT=str(port),
        ORDERFLOW_API__METRICS_PORT=str(metrics),
        ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
    )
    with ready(port) as client:
        answer = client.post("/v1/orders", json=ORDER, headers={"Authorization": f"Bearer {api_key}"})
        assert answer.status_code == 201
        assert client.get("/livez").status_code == 200
        assert client.get("/metrics").status_code == 404
        deadline = time.monotonic() + 10
        while "orderflow_outbox_unpublished_records 1.0" not in (
            told := client.get(f"http://127.0.0.1:{metrics}/metrics").text
        ):
            assert time.monotonic() < deadline, told
        assert 'method="POST",route="/v1/orders",status="201"' in told
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_several_api_processes_share_keys_and_idempotency(start_role: Start, api_key: str) -> None:
    ports = free_ports(2)
    for port in ports:
        start_role("api", ORDERFLOW_API__PORT=str(port))
    headers = {"Authorization": f"Bearer {api_key}", "Idempotency-Key": "basket"}
    with ready(ports[0]) as one, ready(ports[1]) as other:
        first = one.post("/v1/orders", json=ORDER, headers=headers)
        again = other.post("/v1/orders", json=ORDER, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.content == first.content


def test_while_the_database_is_away_requests_get_503_and_come_back_afterwards(
    shop: Settings, stack: Stack, start_role: Start, api_key: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    start_role("api", ORDERFLOW_API__PORT=str(port), ORDERFLOW_DATABASE__POOL_TIMEOUT_SECONDS="0.5")
    name = sql.Identifier(psycopg.conninfo.conninfo_to_dict(shop.database.dsn.get_secret_value())["dbname"])  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {api_key}"}
    with ready(port) as client, psycopg.connect(stack.postgres.dsn, autocommit=True) as server:
        place = client.post("/v1/orders", json=ORDER, headers=headers).headers["location"]
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        server.execute(
            sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(
                sql.Literal(name.as_string().strip('"'))
            )
        )
        for answer in (
            client.get("/readyz"),
            client.post("/v1/orders", json=ORDER, headers=headers),
            client.get(place, headers=headers),
            client.get(place, headers={"Authorization": "Bearer ofk_0123456789ab_unknown"}),
        ):
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:orderflow:problem:database-away")
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) >= 1
        assert client.get("/livez").status_code == 200
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    with ready(port) as client:
        assert client.get(place, headers=headers).status_code == 200
    assert "Traceback" not in (tmp_path / "api.log").read_text()


def test_a_backlog_closes_the_api_and_its_end_opens_it(
    shop_pool: ConnectionPool[Connection], start_role: Start, api_key: str
) -> None:
    (port,) = free_ports(1)
    start_role("api", ORDERFLOW_API__PORT=str(port), ORDERFLOW_API__BACKLOG_MAX_ROWS="3")
    headers = {"Authorization": f"Bearer {api_key}"}

    def order_until(client: httpx.Client, status: int) -> httpx.Response:
        deadline = time.monotonic() + 20
        while (answer := client.post("/v1/orders", json=ORDER, headers=headers)).status_code != status:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
        return answer

    with ready(port) as client:
        refused = order_until(client, 503)
        assert refused.json()["type"] == "urn:orderflow:problem:backlog"
        assert "retry-after" in refused.headers
        with shop_pool.connection() as connection:
            connection.execute("UPDATE api.outbox SET published_at = now()")
        order_until(client, 201)


def run(start_role: Start, tmp_path: Path, *verb: str, **environ: str) -> tuple[int, list[str]]:
    log = tmp_path / f"{verb[0]}.log"
    log.unlink(missing_ok=True)
    code = start_role(*verb, **environ).wait(60)
    return code, log.read_text().splitlines()


@pytest.mark.long
def test_what_is_missing_at_start_is_one_sentence_and_code_78(
    settings: Settings, shop: Settings, start_role: Start, tmp_path: Path, stack: Stack
) -> None:
    del settings
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases: list[tuple[str, dict[str, str], str]] = [
            ("api", {"ORDERFLOW_DATABASE__DSN": "postgresql://127.0.0.1:1/orderflow"}, "ORDERFLOW_DATABASE__DSN"),
            ("api", {"ORDERFLOW_DATABASE__DSN": stack.postgres.dsn_of("postgres")}, "orderflow "),
            ("api", {"ORDERFLOW_API__PORT": str(taken.getsockname()[1])}, "ORDERFLOW_API__PORT"),
            ("api", {"ORDERFLOW_API__AUTH": "off", "ORDERFLOW_API__HOST": "0.0.0.0"}, "ORDERFLOW_API__AUTH=on"),
            ("relay", {"ORDERFLOW_DATABASE__DSN": "postgresql://127.0.0.1:1/orderflow"}, "ORDERFLOW_DATABASE__DSN"),
            (
                "relay",
                {"ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ORDERFLOW_KAFKA__START_TIMEOUT_SECONDS": "1"},
                "orderflow stack up",
            ),
            ("relay", {"ORDERFLOW_KAFKA__SOURCE_TOPIC": f"{shop.kafka.source_topic}-x"}, "orderflow topics apply"),
            ("relay", {"ORDERFLOW_KAFKA__PARTITIONS": "9"}, "ORDERFLOW_KAFKA__PARTITIONS"),
        ]
        for verb, environ, mends in cases:
            code, lines = run(start_role, tmp_path, verb, **{"ORDERFLOW_API__PORT": str(port)} | environ)
            assert code == 78, (environ, lines)
            assert len(lines) == 1, (environ, lines)
            assert lines[0].startswith("orderflow: ")
            assert mends in lines[0]


def test_without_keys_only_this_machine_is_answered(start_role: Start) -> None:
    (port,) = free_ports(1)
    start_role("api", ORDERFLOW_API__PORT=str(port), ORDERFLOW_API__AUTH="off")
    with ready(port) as client:
        assert client.post("/v1/orders", json=ORDER).status_code == 201
        for headers in (
            {"X-Forwarded-For": "192.0.2.1"},
            {"Forwarded": "for=192.0.2.1"},
            {"X-Forwarded-Proto": "https"},
            {"Host": "shop.example"},
        ):
            answer = client.post("/v1/orders", json=ORDER, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json"), headers
