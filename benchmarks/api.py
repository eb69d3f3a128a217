"""How many orders the API takes, beside what its parts could do alone, in the same run.

    python benchmarks/api.py [--orders 2000] [--callers 8] [--json]

Callers on keep-alive connections place orders of three lines: at a bare ASGI app under the same server
(it reads the body and answers), at the API, and straight into PostgreSQL by the API's own statements
through psycopg. Reported: orders/s, p50 and p99 in ms, and CPU microseconds an order of the server, of
PostgreSQL and of the callers. One machine, everything on it; the local stack's PostgreSQL runs without fsync.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil
import uvicorn
from rich.console import Console
from rich.table import Table

from orderflow.core import database, log
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import database as tables
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.stack import LocalStack
from producers import auth
from producers.bodies import PlaceOrder
from producers.ids import new_id
from producers.store import Caller, Store

SKUS = ("TEA-01", "CUP-02", "POT-03")
BODY: dict[str, Any] = {
    "customer_id": str(new_id()),
    "currency": "EUR",
    "lines": [{"sku": sku, "quantity": 2, "unit_price": "12.50"} for sku in SKUS],
    "channel": "web",
}
Figures = dict[str, float]
Place = Callable[[], None]


def main() -> None:
    """Measure the three ways one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--orders", type=int, default=2_000)
    arguments.add_argument("--callers", type=int, default=8)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.bare:
        uvicorn.run(bare, port=chosen.bare, log_config=None, access_log=False)
        return
    log.configure("error", "console")
    with ExitStack() as whole:
        folder = Path(whole.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack = whole.enter_context(LocalStack.temporary(folder / "stack"))
        settings = load(stack.environment(), env_file=folder / "none")
        tables.apply(settings)
        with database.connect(settings.database, "api") as connection:
            key = auth.new_key(connection, "checkout")
        bare_port, api_port = free_ports(2)
        environ = os.environ | stack.environment()
        environ |= {"ORDERFLOW_API__PORT": str(api_port), "ORDERFLOW_LOG_LEVEL": "warning"}
        servers = {
            "bare ASGI app": (bare_port, [sys.executable, __file__, "--bare", str(bare_port)]),
            "order API": (api_port, [sys.executable, "-m", "orderflow", "api"]),
        }
        figures: dict[str, Figures] = {}
        for name, (port, command) in servers.items():
            server = subprocess.Popen(command, env=environ, cwd=folder)  # noqa: S603 - our own commands
            whole.callback(server.wait)
            whole.callback(server.terminate)
            wait_for(port)
            callers = [caller(port, key) for _ in range(chosen.callers)]
            figures[name] = measured(stack, chosen.orders, callers, server.pid)
        figures["psycopg alone"] = psycopg_alone(settings, stack, chosen.orders, chosen.callers)
    report(figures, as_json=chosen.json)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Read the body and answer 201: what the server itself costs."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    answer = json.dumps(BODY).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def caller(port: int, key: str) -> Place:
    """Return a function that places one order on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps(BODY).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}

    def place() -> None:
        connection.request("POST", "/v1/orders", body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == HTTPStatus.CREATED, answer.status

    return place


def psycopg_alone(settings: Settings, stack: LocalStack, orders: int, callers: int) -> Figures:
    """Place orders without HTTP, by the store itself, on the callers' own CPU."""
    order = PlaceOrder.model_validate(BODY)
    with database.pool(settings.database, "api", autocommit=True) as pool:
        store = Store(pool, settings.kafka.source_topic)

        def place() -> None:
            store.place(Caller("checkout"), order)

        return measured(stack, orders, [place] * callers, None)


def measured(stack: LocalStack, orders: int, places: list[Place], server: int | None) -> Figures:
    """Return orders/s, p50 and p99 in ms, and CPU microseconds an order."""
    for place in places:
        place()  # connections, caches and prepared statements are made outside the measurement
    times: list[float] = []

    def run(place: Place) -> None:
        for _ in range(orders // len(places)):
            began = time.perf_counter()
            place()
            times.append(time.perf_counter() - began)

    def cpu() -> dict[str, float]:
        return {
            "server_us": family_seconds(server) if server else 0.0,
            "postgres_us": family_seconds(stack.postgres.daemon.pid),
            "callers_us": time.process_time(),
        }

    threads = [threading.Thread(target=run, args=(place,)) for place in places]
    before, began = cpu(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    used = {name: (after - before[name]) * 1e6 / len(times) for name, after in cpu().items()}
    cuts = quantiles(times, n=100)
    return {"orders_per_s": len(times) / seconds, "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3, **used}


def family_seconds(pid: int | None) -> float:
    """Return the CPU seconds of a process and of all it started that still run or have ended."""
    process = psutil.Process(pid)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.05)
        else:
            return


def report(figures: dict[str, Figures], *, as_json: bool) -> None:
    """Print one line per way."""
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("way", "orders/s", "p50 ms", "p99 ms", "server µs", "PostgreSQL µs", "callers µs")
    for way, one in figures.items():
        rate, p50, p99, *used = one.values()
        table.add_row(way, f"{rate:,.0f}", f"{p50:.1f}", f"{p99:.1f}", *(f"{value:,.0f}" for value in used))
    Console().print(table)


if __name__ == "__main__":
    main()
