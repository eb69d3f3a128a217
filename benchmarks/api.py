"""How many orders the API takes, beside what its parts could do alone, in the same run.

    python benchmarks/api.py [--orders 2000] [--callers 1,8,32] [--processes 1,2] [--json]

Callers on keep-alive connections place orders of three lines: at a bare ASGI app under the same server
(it reads the body and answers), at the API, in one process and in more, and straight into PostgreSQL by the
API's own statements through psycopg. Each with so many callers at once. Reported: orders/s, percentiles in ms,
and CPU microseconds an order of the servers, of PostgreSQL and of the callers. One machine, everything on it;
the local stack's PostgreSQL runs without fsync.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from producers.protocol import BoundedProtocol
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
    """Measure the ways one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--orders", type=int, default=2_000)
    arguments.add_argument("--callers", type=numbers, default=[1, 8, 32])
    arguments.add_argument("--processes", type=numbers, default=[1, 2])
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.bare:
        uvicorn.run(bare, port=chosen.bare, log_config=None, access_log=False, loop="uvloop", http=BoundedProtocol)
        return
    log.configure("error", "console")
    with ExitStack() as whole:
        folder = Path(whole.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack = whole.enter_context(LocalStack.temporary(folder / "stack"))
        settings = load(stack.environment(), env_file=folder / "none")
        tables.apply(settings)
        with database.connect(settings.database, "api") as connection:
            key = auth.new_key(connection, "checkout")
        environ = os.environ | stack.environment() | {"ORDERFLOW_LOG_LEVEL": "warning"}
        # Nothing publishes here: what waits must not close the API.
        environ |= {"ORDERFLOW_API__BACKLOG_MAX_ROWS": str(10**9), "ORDERFLOW_API__BACKLOG_MAX_AGE_SECONDS": str(10**6)}
        figures: dict[str, Figures] = {}
        ways = [("bare ASGI app", 1, [sys.executable, __file__, "--bare"])]
        ways += [(f"order API x {n}", n, [sys.executable, "-m", "orderflow", "api"]) for n in chosen.processes]
        for name, processes, command in ways:
            with servers(command, processes, environ, folder) as running:
                for callers in chosen.callers:
                    places = [caller(running[n % processes][0], key) for n in range(callers)]
                    pids = [pid for _, pid in running]
                    figures[f"{name}, {callers} callers"] = measured(stack, chosen.orders, places, pids)
        for callers in chosen.callers:
            figures[f"psycopg alone, {callers} callers"] = psycopg_alone(settings, stack, chosen.orders, callers)
    report(figures, as_json=chosen.json)


def numbers(text: str) -> list[int]:
    """Read numbers with commas between them."""
    return [int(part) for part in text.split(",")]


@contextmanager
def servers(
    command: list[str], processes: int, environ: dict[str, str], folder: Path
) -> Iterator[list[tuple[int, int]]]:
    """Run so many servers; yield the port and the pid of each."""
    with ExitStack() as whole:
        running = []
        for port in free_ports(processes):
            arguments = [*command, str(port)] if command[-1] == "--bare" else command
            server = subprocess.Popen(  # noqa: S603 - our own commands
                arguments, env=environ | {"ORDERFLOW_API__PORT": str(port)}, cwd=folder
            )
            whole.callback(server.wait)
            whole.callback(server.terminate)
            wait_for(port)
            running.append((port, server.pid))
        yield running


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

        return measured(stack, orders, [place] * callers, [])


def measured(stack: LocalStack, orders: int, places: list[Place], servers: list[int]) -> Figures:
    """Return orders/s, percentiles in ms, and CPU microseconds an order."""
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
            "server_us": sum(map(family_seconds, servers)),
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
    cuts = quantiles(times, n=1_000)
    percentiles = {f"p{share / 10:g}_ms": cuts[share - 1] * 1e3 for share in (500, 950, 990, 999)}
    return {"orders_per_s": len(times) / seconds, **percentiles, **used}


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
    table = Table("way", "orders/s", "p50 ms", "p95", "p99", "p99.9", "server µs", "PostgreSQL µs", "callers µs")
    for way, one in figures.items():
        rate, *rest = one.values()
        times, used = rest[:4], rest[4:]
        table.add_row(way, f"{rate:,.0f}", *(f"{value:.1f}" for value in times), *(f"{value:,.0f}" for value in used))
    Console().print(table)


if __name__ == "__main__":
    main()
