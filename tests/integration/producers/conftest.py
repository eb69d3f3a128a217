"""What the tests of the API under fire share: API processes, and callers that note each promise."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any, cast
from uuid import uuid4

import httpx
import psutil
import psycopg
import pytest
from confluent_kafka import Message

from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import free_ports

ORDER: dict[str, Any] = {
    "customer_id": "0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11",
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}

# A deferred trigger runs at COMMIT, when order, event and answer are all inserted: there it waits for the test.
HOLD_COMMITS = """
CREATE FUNCTION api.held() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER held AFTER INSERT ON api.outbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION api.held();
"""
IN_COMMIT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"


@dataclass
class Reply:
    """An answer, or none: `status` 0 when the connection broke or the time was over."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def kind(self) -> str:
        return str(json.loads(self.body)["type"]).rpartition(":")[2] if self.body else ""


@dataclass
class Api:
    """An API process that listens."""

    process: Popen[bytes]
    port: int
    metrics_port: int
    key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(
        self, method: str, path: str, body: Any = None, *, idempotency_key: str | None = None, patience: float = 60.0
    ) -> Reply:
        """Ask once, on a connection of its own."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            return Reply(0, seconds=time.monotonic() - began)
        finally:
            connection.close()
        said = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, content, said, time.monotonic() - began)

    def order(self, *, idempotency_key: str | None = None, patience: float = 60.0) -> Reply:
        return self.call("POST", "/v1/orders", ORDER, idempotency_key=idempotency_key, patience=patience)

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text

    def rss(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@dataclass
class Callers:
    """Callers that place orders under keys of their own, repeat what has no answer or a 503, and note it all."""

    apis: list[Api]
    number: int = 4
    pause: float = 0.0
    # Order ids that a 201 told; one entry an order, whatever it took.
    promised: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Let them call until the block ends, and end what is begun."""
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(self.number)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.done.set()
            for thread in threads:
                thread.join()

    def statuses(self) -> Counter[int]:
        return Counter(reply.status for reply in list(self.replies))

    def wait(self, until: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"{what}; so far {self.statuses()}"
            time.sleep(0.05)

    def wait_for_more(self, orders: int, seconds: float = 60.0) -> None:
        goal = len(self.promised) + orders
        self.wait(lambda: len(self.promised) >= goal, "no orders are taken", seconds)

    def _run(self, number: int) -> None:
        turn = number
        while not self.done.is_set():
            key = str(uuid4())
            while True:
                turn += 1
                reply = self.apis[turn % len(self.apis)].order(idempotency_key=key)
                self.replies.append(reply)
                if reply.status == 201:
                    self.promised.append(json.loads(reply.body)["order_id"])
                    break
                if self.done.wait(0.1):
                    return
            self.done.wait(self.pause)


@pytest.fixture
def start_api(start_role: Callable[..., Popen[bytes]], api_key: str) -> Callable[..., Api]:
    """Return a function that starts one more API process and waits until it is ready."""

    def start(**environ: str) -> Api:
        port, metrics_port = free_ports(2)
        process = start_role(
            "api", ORDERFLOW_API__PORT=str(port), ORDERFLOW_API__METRICS_PORT=str(metrics_port), **environ
        )
        api = Api(process, port, metrics_port, api_key)
        wait_until(lambda: api.call("GET", "/readyz", patience=5).status == 200, "the API does not get ready", 90)
        return api

    return start


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def until() -> Callable[..., None]:
    """Return `wait_until(condition, what, seconds=60)`: it fails with `what`."""
    return wait_until


@pytest.fixture
def callers() -> type[Callers]:
    """The class of callers."""
    return Callers


@pytest.fixture
def admin(shop: Settings) -> Iterator[psycopg.Connection]:
    """A connection to this test's database that may do everything; every statement is a transaction of its own."""
    with psycopg.connect(shop.database.dsn.get_secret_value(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def all_published(published: Callable[[], list[Message]], shop: Settings) -> Callable[[list[str]], None]:
    """Return a check: the topic has each of these orders' events as stored, first occurrences in version order."""

    def check(promised: list[str]) -> None:
        with psycopg.connect(shop.database.dsn.get_secret_value()) as connection:
            wait_until(
                lambda: _count(connection, "SELECT count(*) FROM api.outbox WHERE published_at IS NULL") == 0,
                "the relay does not publish the rest",
                180,
            )
            rows = connection.execute(
                "SELECT event_id::text, aggregate_id::text, aggregate_version, key, value, headers FROM api.outbox"
            ).fetchall()
        stored = {row[0]: row for row in rows}
        assert len(promised) == len(set(promised))
        assert set(promised) <= {row[1] for row in rows}
        first: dict[str, Message] = {}
        versions: dict[str, list[int]] = {}
        for message in published():
            headers = [[name, str(text, "utf-8")] for name, text in cast("list[tuple[str, bytes]]", message.headers())]
            event_id = dict(headers)["ce_id"]
            _, order_id, version, key, value, kept = stored[event_id]
            assert (message.key(), message.value()) == (bytes(key), bytes(value))
            assert headers == kept
            if event_id not in first:
                first[event_id] = message
                versions.setdefault(order_id, []).append(version)
        assert set(first) == set(stored)
        assert all(seen == sorted(seen) for seen in versions.values())

    return check


def _count(connection: psycopg.Connection, query: str) -> int:
    found = connection.execute(query.encode()).fetchone()
    connection.rollback()
    assert found is not None
    return int(found[0])


@pytest.fixture
def count(admin: psycopg.Connection) -> Callable[[str], int]:
    """Return a function that gives the one number of a query."""

    def ask(query: str) -> int:
        found = admin.execute(query.encode()).fetchone()
        assert found is not None
        return int(found[0])

    return ask


@pytest.fixture
def commits_held(shop: Settings, admin: psycopg.Connection) -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager in which every COMMIT of an order waits until the block ends."""
    admin.execute(HOLD_COMMITS)

    @contextmanager
    def held() -> Iterator[None]:
        with psycopg.connect(shop.database.dsn.get_secret_value()) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(4711)")
            yield

    return held


@pytest.fixture
def in_commit(count: Callable[[str], int]) -> Callable[[], bool]:
    """Return a function that says whether an order waits in its held COMMIT."""
    return lambda: count(IN_COMMIT) > 0


@pytest.fixture
def log_of_api(tmp_path: Path) -> Path:
    """The log of all API processes of this test."""
    return tmp_path / "api.log"
