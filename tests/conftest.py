"""What every test may ask for: the real parts, and a clean corner of each.

`ORDERFLOW_TEST_STACK=FOLDER` joins the running stack of that folder (`orderflow stack up` there) instead of
starting one, which saves some seconds a run.
"""

import contextlib
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import redis
from confluent_kafka.admin import AdminClient
from psycopg import sql

from consumers.runtime.claims import Claims, connect
from orderflow.core.errors import OrderflowError
from orderflow.core.settings import RedisSettings, Settings, load
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.process import Command
from orderflow.ops.stack.redis import DATABASES, Redis
from orderflow.ops.stack.stack import LocalStack

JOINED = pytest.StashKey[str | None]()
# Random, so that two runs on one joined stack rarely meet; database 0 is the stack's own.
_redis_databases = itertools.cycle(range(1, DATABASES))
for _ in range(secrets.randbelow(DATABASES)):
    next(_redis_databases)


def pytest_configure(config: pytest.Config) -> None:
    """Take our variable out of the environment: the product refuses names that it does not know."""
    config.stash[JOINED] = os.environ.pop("ORDERFLOW_TEST_STACK", None)


@pytest.fixture(scope="session")
def stack(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The real parts: Kafka with quick groups, Redis, PostgreSQL, the mail sink.

    A test that stops or pauses a part starts or resumes it again before it ends.
    """
    joined = pytestconfig.stash[JOINED]
    whole = contextlib.ExitStack()
    try:
        chosen = LocalStack.join(Path(joined)) if joined else LocalStack.temporary(tmp_path_factory.mktemp("stack"))
        running = whole.enter_context(chosen)
    except OrderflowError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the local stack does not start: {error}")
        pytest.skip(f"the local stack does not start: {error}")
    with whole:
        yield running


@pytest.fixture
def database(stack: LocalStack) -> Iterator[str]:
    """DSN of a new, empty database, dropped afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield stack.postgres.dsn_of(name)
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def redis_url(stack: LocalStack) -> Iterator[str]:
    """URL of an empty numbered database of the stack's Redis, emptied afterwards."""
    url = stack.redis.url_of(next(_redis_databases))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.fixture
def source_topic(stack: LocalStack) -> Iterator[str]:
    """A topic name of this test alone, and a prefix for the rest; what begins with it is deleted afterwards."""
    prefix = f"orders-{secrets.token_hex(4)}"
    yield prefix
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    topics = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    if topics:
        for done in admin.delete_topics(topics).values():
            done.result(10)


@pytest.fixture
def settings(stack: LocalStack, database: str, redis_url: str, source_topic: str, tmp_path: Path) -> Settings:
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
