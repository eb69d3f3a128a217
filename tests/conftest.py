"""What every test may ask for: the real parts, and a clean corner of each.

`ORDERFLOW_TEST_STACK=local|docker|FOLDER/.orderflow` chooses which parts; see `stacks/choice.py`.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
import redis
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from fastapi.testclient import TestClient
from psycopg import Connection, sql
from psycopg_pool import ConnectionPool

from consumers.runtime.claims import Claims, connect
from orderflow.core import database as core_database
from orderflow.core.metrics import Metrics
from orderflow.core.settings import RedisSettings, Settings, load
from orderflow.ops.provision import database as tables
from orderflow.ops.provision import topics
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.process import Command
from orderflow.ops.stack.redis import DATABASES, Redis
from orderflow.ops.stack.stack import LocalStack
from producers import auth
from producers.api import Parts, create_app
from producers.backlog import Gate
from producers.bell import Bell
from producers.store import Store
from tests.stacks import choice
from tests.stacks.interface import Stack

# How long an example takes says more about the machine than about the code; a machine that is busy is no failure.
hypothesis.settings.register_profile("orderflow", deadline=None)
hypothesis.settings.load_profile("orderflow")

CHOICE = pytest.StashKey[str | None]()
# Random, so that two runs on one joined stack rarely meet; database 0 is the stack's own.
_redis_databases = itertools.cycle(range(1, DATABASES))
for _ in range(secrets.randbelow(DATABASES)):
    next(_redis_databases)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--short`."""
    parser.addoption("--short", action="store_true", help="run the tests marked `long` in their short form")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, with `--short`, what is marked `long(whole=True)`: it has no short form, and others show the same."""
    if config.getoption("short"):
        items[:] = [item for item in items if not any(mark.kwargs.get("whole") for mark in item.iter_markers("long"))]


@pytest.fixture(scope="session")
def short(pytestconfig: pytest.Config) -> bool:
    """Whether a test marked `long` shall run in its short form: fewer requests, shorter outages, the same promises."""
    return bool(pytestconfig.getoption("short"))


def pytest_configure(config: pytest.Config) -> None:
    """Take our variable out of the environment: the product refuses names that it does not know."""
    # A worker of xdist inherits an environment from which it is already gone.
    given: str | None = getattr(config, "workerinput", {}).get(choice.VARIABLE)
    config.stash[CHOICE] = os.environ.pop(choice.VARIABLE, given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what was chosen."""
    node.workerinput[choice.VARIABLE] = node.config.stash[CHOICE]


def pytest_report_header(config: pytest.Config) -> str:
    """Say which stack the tests will use."""
    return f"stack: {config.stash[CHOICE] or 'docker, else local'} (choose: {choice.VARIABLE}=local|docker|FOLDER)"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name cases alike in every process: a function by its name, a set in order."""
    if isinstance(val, set | frozenset):
        return "+".join(sorted(map(str, val)))
    if callable(val) and not isinstance(val, type):
        name = getattr(val, "__name__", argname)
        return argname if name == "<lambda>" else name
    return None


@pytest.fixture(scope="session")
def chosen_stack(pytestconfig: pytest.Config) -> str | None:
    """What ORDERFLOW_TEST_STACK said."""
    return pytestconfig.stash[CHOICE]


@pytest.fixture(scope="session")
def local_stack(chosen_stack: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The parts as processes of this machine: for tests of the local stack itself, of its logs and pids."""
    with choice.local(chosen_stack, tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="session")
def stack(
    request: pytest.FixtureRequest, chosen_stack: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The real parts: Kafka with quick groups, Redis, PostgreSQL, the mail sink.

    A test that stops or pauses a part starts or resumes it again before it ends.
    """
    folder = tmp_path_factory.mktemp("containers")
    with choice.containers(chosen_stack, folder) as running:
        yield running or request.getfixturevalue("local_stack")


@pytest.fixture
def database(stack: Stack) -> Iterator[str]:
    """DSN of a new, empty database, dropped afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield stack.postgres.dsn_of(name)
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def redis_url(stack: Stack) -> Iterator[str]:
    """URL of an empty numbered database of the stack's Redis, emptied afterwards."""
    url = stack.redis.url_of(next(_redis_databases))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.fixture
def source_topic(stack: Stack) -> Iterator[str]:
    """A topic name of this test alone, and a prefix for the rest; what begins with it is deleted afterwards."""
    prefix = f"orders-{secrets.token_hex(4)}"
    yield prefix
    # Tidiness only: a broker that a test has just paused or killed may not answer yet.
    with contextlib.suppress(KafkaException, TimeoutError):
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
        topics = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
        for done in admin.delete_topics(topics).values() if topics else ():
            done.result(30)


@pytest.fixture
def settings(stack: Stack, database: str, redis_url: str, source_topic: str, tmp_path: Path) -> Settings:
    """Settings that point at the stack, at this test's own database, Redis database and source topic."""
    environ = stack.environment() | {
        "ORDERFLOW_DATABASE__DSN": database,
        "ORDERFLOW_REDIS__URL": redis_url,
        "ORDERFLOW_KAFKA__SOURCE_TOPIC": source_topic,
        "ORDERFLOW_STATE_DIR": str(tmp_path),
    }
    return load(environ, env_file=tmp_path / "no-env-file")


class DebianRedis(Redis):
    """The same server settings, run by the `redis-server` on PATH."""

    def prepare(self) -> Command:
        command = super().prepare()
        return replace(command, argv=["redis-server", *command.argv[1:]])


@pytest.fixture(scope="session", params=["valkey", "redis-server"])
def _redis_of_our_own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if request.param == "redis-server" and shutil.which("redis-server") is None:
        message = "redis-server is not on PATH (Debian: apt-get install redis-server)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    kind = Redis if request.param == "valkey" else DebianRedis
    server = kind(tmp_path_factory.mktemp(request.param), free_ports(1)[0])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(_redis_of_our_own: Redis) -> Iterator[Redis]:
    """An empty Redis outside the stack that a test may pause, restart and configure: Valkey, then Debian's Redis."""
    with redis.Redis.from_url(_redis_of_our_own.url) as client:
        client.flushall()
        yield _redis_of_our_own
        _redis_of_our_own.start()
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def open_claims(redis_server: Redis) -> Iterator[Callable[..., Claims]]:
    """Make the claims of one more worker: `open_claims(lease_seconds=30.0, ttl=..., group="email")`."""
    with contextlib.ExitStack() as clients:

        def make(group: str = "email", *, lease_seconds: float = 30.0, ttl: timedelta = timedelta(hours=72)) -> Claims:
            client = connect(RedisSettings.model_validate({"url": redis_server.url}))
            clients.callback(client.close)
            claims = Claims(client, group, lease_seconds=lease_seconds, ttl=ttl)
            claims.load()
            return claims

        yield make


@pytest.fixture
def shop_tables(settings: Settings) -> Settings:
    """Settings of a shop with all its tables, three partitions, and no topic yet."""
    small = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})
    tables.apply(small)
    return small


@pytest.fixture
def shop(shop_tables: Settings) -> Settings:
    """Settings of a shop whose orders can be published: all tables, and the source topic."""
    topics.apply(shop_tables, ())
    return shop_tables


@pytest.fixture
def shop_pool(shop_tables: Settings) -> Iterator[ConnectionPool[Connection]]:
    """Connections of the order API, under its own role."""
    with core_database.pool(shop_tables.database, "api") as pool:
        yield pool


@pytest.fixture
def api_parts(shop_tables: Settings) -> Iterator[Parts]:
    """What the order API is made of; its gate may be closed by hand."""
    with core_database.pool(shop_tables.database, "api", autocommit=True) as pool, Bell(pool) as bell:
        yield Parts(
            pool=pool,
            store=Store(pool, shop_tables.kafka.source_topic, bell.ring),
            keys=auth.KeyRing(pool),
            gate=Gate(shop_tables.api.backlog_max_rows, shop_tables.api.backlog_max_age_seconds),
            metrics=Metrics(),
            body_limit=shop_tables.api.body_limit_bytes,
            idempotency_kept=timedelta(hours=shop_tables.api.idempotency_hours),
        )


@pytest.fixture
def api_key(shop_pool: ConnectionPool[Connection]) -> str:
    """An API key of the owner `checkout`."""
    with shop_pool.connection() as connection:
        return auth.new_key(connection, "checkout")


@pytest.fixture
def http(api_parts: Parts, api_key: str) -> Iterator[TestClient]:
    """A client of the order API in this process, with a key of the owner `checkout`."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with TestClient(create_app(api_parts), headers=headers, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def role_environment(shop: Settings) -> dict[str, str]:
    """The environment in which the product's processes work on this test's shop."""
    return {
        "PATH": os.environ["PATH"],
        # The code beside these tests, also in a copy of the tree.
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": shop.kafka.bootstrap_servers,
        "ORDERFLOW_KAFKA__SOURCE_TOPIC": shop.kafka.source_topic,
        "ORDERFLOW_KAFKA__PARTITIONS": str(shop.kafka.partitions),
        "ORDERFLOW_DATABASE__DSN": shop.database.dsn.get_secret_value(),
        "ORDERFLOW_REDIS__URL": shop.redis.url.get_secret_value(),
        "ORDERFLOW_SMTP__HOST": shop.smtp.host,
        "ORDERFLOW_SMTP__PORT": str(shop.smtp.port),
    }


@pytest.fixture
def start_role(role_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that runs `orderflow VERB...` as a process, its log in `VERB.log`; killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*verb: str, **environ: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{verb[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orderflow", *verb],
                cwd=tmp_path,
                env=role_environment | environ,
                stdout=log,
                stderr=log,
            )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait(10)


@pytest.fixture
def published(shop: Settings) -> Callable[[], list[Message]]:
    """Return a function that reads the whole source topic as it is now, each partition in its order."""

    def read() -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": shop.kafka.bootstrap_servers,
                "group.id": "tests-read-without-a-group",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
            }
        )
        messages: list[Message] = []
        try:
            for number in range(shop.kafka.partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(shop.kafka.source_topic, number), 10)
                consumer.assign([TopicPartition(shop.kafka.source_topic, number, low)])
                wanted = len(messages) + high - low
                while len(messages) < wanted:
                    messages.extend(message for message in consumer.consume(wanted - len(messages), 1.0))
        finally:
            consumer.close()
        assert all(message.error() is None for message in messages)
        return messages

    return read
