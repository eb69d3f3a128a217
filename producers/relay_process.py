"""The relay as a process: checks at start, one leader by advisory lock, a new term after each lost connection."""

import gc

from psycopg import OperationalError

from orderflow.core import database, kafka, log
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.kafka import Publisher
from orderflow.core.kafka_reach import is_hidden
from orderflow.core.lifecycle import Stop, stop_on_signals
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import outbox
from producers.backlog import BacklogCounter
from producers.leadership import leading
from producers.relay import Relay
from producers.store import tables_exist

DRAIN_SECONDS = 10.0
RECONNECT_SECONDS = 1.0

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
    # The collector walked all that was imported again and again, a tenth of the relay's time.
    gc.freeze()
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
        with leading(settings, stop) as connection:
            if connection is None:
                return
            _log.info("this relay leads")
            relay = Relay(
                connection,
                publisher,
                metrics,
                batch_rows=settings.relay.batch_rows,
                poll_seconds=settings.relay.poll_seconds,
                lease_seconds=settings.relay.lease_seconds,
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
        _log.warning("this relay does not lead; what was in flight is sent again", error=str(error).strip())
        stop.wait(RECONNECT_SECONDS)
        return
    if left:
        message = f"{left} events had no delivery report when the relay stopped; the next start sends them again"
        raise NotDrained(message)
