"""A Redis of its own, and worlds on it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import redis

from consumers.runtime.claims import Claims, connect
from orderflow.core.settings import RedisSettings
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.redis import Redis
from tests.model.system import GROUP, System
from tests.model.world import World


@contextmanager
def worlds(folder: Path) -> Iterator[Callable[[System], World]]:
    """Start a Redis in `folder`; gives a maker of worlds, each on an empty database.

    A lease lasts an hour there: it ends when a step says so, never by itself.
    """
    server = Redis(folder, free_ports(1)[0])
    server.start()
    try:
        settings = RedisSettings.model_validate({"url": server.url})
        with redis.Redis.from_url(server.url) as client, connect(settings) as own:
            client.config_set("appendonly", "no")
            claims = Claims(own, GROUP, lease_seconds=3600.0, ttl=timedelta(hours=72))
            claims.load()
            yield lambda system: World(system, claims, client)
    finally:
        server.stop()
