"""The API as a process: database and port checked at start, then uvicorn until a signal."""

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import uvicorn

from orderflow.core import database, log
from orderflow.core.errors import Misconfigured
from orderflow.core.lifecycle import Stop, stop_on_signals
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import auth, outbox
from producers.api import Parts, create_app
from producers.backlog import BacklogCounter, Gate
from producers.bell import Bell
from producers.protocol import BoundedProtocol
from producers.store import Store, tables_exist

# How much longer than the requests may take the whole stop may, in seconds, until the watchdog ends the process.
_GRACE_SECONDS = 5
_BACKLOG_OF_CONNECTIONS = 2_048

_log = log.get(__name__)


def serve(settings: Settings) -> None:
    """Run the API until SIGTERM or SIGINT; requests that run then are answered first.

    Raises `Misconfigured` when the database, its tables or the port are not there, or when
    `auth=off` would face a network.
    """
    api = settings.api
    if api.auth == "off":
        auth.assert_loopback(api.host)
    with database.connect(settings.database, "api") as connection, tables_exist():
        outbox.backlog(connection)
    metrics = Metrics()
    gate = Gate(api.backlog_max_rows, api.backlog_max_age_seconds)
    with (
        _listening(api.host, api.port) as listener,
        database.pool(settings.database, "api", limit_seconds=api.statement_seconds, autocommit=True) as pool,
        BacklogCounter(pool, metrics, gate),
        Bell(pool) as bell,
    ):
        app = create_app(
            Parts(
                pool=pool,
                store=Store(pool, settings.kafka.source_topic, bell.ring),
                keys=auth.KeyRing(pool) if api.auth == "on" else auth.OpenHouse(),
                gate=gate,
                metrics=metrics,
                body_limit=api.body_limit_bytes,
                idempotency_kept=timedelta(hours=api.idempotency_hours),
                patience_seconds=settings.database.pool_timeout_seconds,
                access_log=api.access_log,
            )
        )
        if api.metrics_port:
            metrics.serve(api.metrics_host, api.metrics_port)
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # The caller's address is not used; forwarded headers are not believed.
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(api.stop_budget_seconds),
        )
        _log.info("order API listens", host=api.host, port=api.port, auth=api.auth)
        _Server(config).run(sockets=[listener])
    _log.info("order API stopped")


class _Server(uvicorn.Server):
    """Uvicorn with our stop: exit code 0 after a clean stop, and a watchdog for one that hangs."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        self._stop = Stop()
        with stop_on_signals(self._stop, budget_seconds=(self.config.timeout_graceful_shutdown or 0) + _GRACE_SECONDS):
            yield

    async def on_tick(self, counter: int) -> bool:
        return bool(self._stop) or await super().on_tick(counter)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG_OF_CONNECTIONS)
    except OSError as error:
        message = (
            f"the order API cannot listen on {host}:{port} ({error.strerror}): stop what does, "
            "or set ORDERFLOW_API__HOST and ORDERFLOW_API__PORT"
        )
        raise Misconfigured(message) from None
