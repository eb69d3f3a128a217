"""The relay as a process: checks at start, one leader by advisory lock, a new term after each lost connection."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Connection, OperationalError

from orderflow.core import database, kafka, log
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.kafka import Publisher
from orderflow.core.kafka_reach import is_hidden
from orderflow.core.lifecycle import Stop, stop_on_signals
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import outbox
from producers.backlog import BacklogCounter
from producers.relay import Relay
from producers.store import tables_exist

DRAIN_SECONDS = 10.0
RECONNECT_SECONDS = 1.0
# Two numbers: a space of its own, which the idempotency keys' hashes do not share.
_LEADER_LOCK = (673_373_569, 1)

_log = log.get(__name__)


class NotDrained(OrderflowError):
    """Raised at the end when some events had no delivery report; they are sent again at the next start."""


def run(settings: Settings) -> None:
    """Publish until SIGTERM or SIGINT, as the leader or in waiting for it.

    Raises `Misconfigured` at start when Kafka, the source topic, the database or its tables are not
    there, and `NotDrained` at the end.
    """
    require_topic(settings)
    with database.connect(settings.database, "api") as connection, tables_exist():
        outbox.backlog(connection)
    metrics = Metrics()
    if settings.relay.metrics_port:
        metrics.serve(settings.relay.metrics_host, settings.relay.metrics_port)
    publisher: Publisher[int] = Publisher(kafka.producer_config(settings.kafka))
    with (
        stop_on_signals(Stop(), budget_seconds=DRAIN_SECONDS + 5) as stop,
        database.pool(settings.database, "api", size=1) as pool,
        BacklogCounter(pool, metrics),
    ):
        while not stop:
            _term(settings, publisher, metrics, stop)
    _log.info("relay stopped")


def require_topic(settings: Settings) -> None:
    """Make sure that the source topic is as configured. Raises `Misconfigured`."""
    source, expected = settings.kafka.source_topic, settings.kafka.partitions
    admin = kafka.admin(settings.kafka)
    found = admin.list_topics(timeout=settings.kafka.start_timeout_seconds).topics.get(source)
    if found is None:
        if is_hidden(admin, source):
            raise Misconfigured(f"topic {source} is hidden from us: give our user DESCRIBE and WRITE on it")
        message = f"topic {source} does not exist: run `orderflow topics apply`"
        raise Misconfigured(message)
    if len(found.partitions) != expected:
        message = (
            f"topic {source} has {len(found.partitions)} partitions and {expected} are configured: "
            "set ORDERFLOW_KAFKA__PARTITIONS to the topic's, or run `orderflow topics apply` on a new topic"
        )
        raise Misconfigured(message)


def _term(settings: Settings, publisher: Publisher[int], metrics: Metrics, stop: Stop) -> None:
    """Lead once, until a stop or until the connection, and the lock with it, is lost."""
    try:
        with _leader(settings, stop) as connection:
            if connection is None:
                return
            _log.info("this relay leads")
            relay = Relay(
                connection,
                publisher,
                metrics,
                batch_rows=settings.relay.batch_rows,
                poll_seconds=settings.relay.poll_seconds,
            )
            try:
                relay.run(stop)
                left = relay.drain(DRAIN_SECONDS)
            except OperationalError as error:
                left = relay.abandon()
                if stop and left:
                    message = (
                        f"the database went away before {left} events were marked; the next start sends them again"
                    )
                    raise NotDrained(message) from error
                raise
    except (OperationalError, Misconfigured) as error:
        # What `connect` says at start stops the process; later it is an outage.
        _log.warning("the database is away; what was in flight is sent again", error=str(error).strip())
        stop.wait(RECONNECT_SECONDS)
        return
    if left:
        message = f"{left} events had no delivery report when the relay stopped; the next start sends them again"
        raise NotDrained(message)


@contextmanager
def _leader(settings: Settings, stop: Stop) -> Iterator[Connection | None]:
    """Wait for the lock; yield the connection that holds it, None when a stop came first."""
    with database.connect(settings.database, "api", autocommit=True) as connection:
        # A leader whose machine is gone must not keep the lock for the two hours of TCP's defaults.
        for setting, seconds in (("idle", 10), ("interval", 5), ("count", 3)):
            connection.execute(f"SET tcp_keepalives_{setting} = {seconds}")
        told = False
        while not _locks(connection):
            if not told:
                _log.info("another relay leads; waiting")
                told = True
            if stop.wait(settings.relay.poll_seconds):
                yield None
                return
        yield connection


def _locks(connection: Connection) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", _LEADER_LOCK).fetchone()
    return bool(row and row[0])
