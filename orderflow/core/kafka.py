"""Kafka client settings, one dict per role, and the publisher that relay, router and replay share."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from orderflow.core import clock, log
from orderflow.core.causes import kafka as causes
from orderflow.core.kafka_reach import answered_admin
from orderflow.core.settings import KafkaSettings
from orderflow.core.topics import HEADER_ROOM_BYTES

Headers = Sequence[tuple[str, bytes | None]]
T = TypeVar("T")

_QUEUE_KBYTES = 65_536

_log = log.get(__name__)


def connection(kafka: KafkaSettings) -> dict[str, Any]:
    """Return what every client needs to reach the cluster."""
    optional = {
        "sasl.mechanism": kafka.sasl_mechanism,
        "sasl.username": kafka.sasl_username,
        "sasl.password": kafka.sasl_password.get_secret_value() if kafka.sasl_password else None,
        "ssl.ca.location": str(kafka.ssl_ca_location) if kafka.ssl_ca_location else None,
        "ssl.certificate.location": str(kafka.ssl_certificate_location) if kafka.ssl_certificate_location else None,
        "ssl.key.location": str(kafka.ssl_key_location) if kafka.ssl_key_location else None,
    }
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        # The only place where librdkafka names causes, a wrong password or an unknown authority; silent otherwise.
        "error_cb": client_error_logger(kafka),
        # librdkafka writes to stderr by itself unless told not to; error_cb has the same news.
        "log_level": 2,
        # Added partitions and re-created topics are seen within seconds, not five minutes.
        "topic.metadata.refresh.interval.ms": 5_000,
        # A broker that restarts is asked again soon; the default backs off to 10 s.
        "reconnect.backoff.max.ms": 2_000,
        **{name: value for name, value in optional.items() if value is not None},
    }


def producer_config(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the settings of a producer that may lose and reorder nothing."""
    return {
        **connection(kafka),
        "enable.idempotence": True,
        "acks": "all",
        # Agrees with Java's default for 1,009 of 1,009 keys; librdkafka's own default for 71.
        "partitioner": "murmur2_random",
        # The client counts uncompressed bytes, the broker compressed ones: 3 MB of zeros pass a limit of
        # 1 MiB, and their copy must too. So the broker is the judge of everything that the queue can hold.
        "message.max.bytes": max(_QUEUE_KBYTES * 1024 * 3 // 4, kafka.max_message_bytes + HEADER_ROOM_BYTES),
        # A batch over the topic's limit fails all its records and librdkafka does not split it.
        "batch.size": min(1_000_000, kafka.max_message_bytes),
        # The broker checks the compressed batch, so copies must be compressed like their source.
        "compression.type": "lz4",
        "linger.ms": 5,
        # A report in two minutes at the latest: after that the row or the record is sent again.
        "delivery.timeout.ms": 120_000,
        # Bounded memory while the broker is away: produce() then raises BufferError.
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
    }


def consumer_config(kafka: KafkaSettings, group_id: str, *, max_poll_seconds: float) -> dict[str, Any]:
    """Return the settings of a group's consumer; commits and positions are the runtime's own business."""
    protocol: dict[str, Any] = (
        # KIP-848. Range puts the same partition number of all topics on one member: 0 of 12 split,
        # where uniform and cooperative-sticky split 12.
        {"group.protocol": "consumer", "group.remote.assignor": "range"}
        if kafka.group_protocol == "consumer"
        # Heartbeats of 1 s: a member that leaves is noticed in 1.03 s instead of 3.
        else {
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 1_000,
            "session.timeout.ms": 10_000,
        }
    )
    return {
        **connection(kafka),
        **protocol,
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A group starts only where somebody chose: with `earliest`, expired offsets would mail
        # every customer in history; with `latest` they would skip records.
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": int(max_poll_seconds * 1000),
        # The default of 1 s held a raw loop to 218,000 records/s instead of 692,000.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 50,
        # What is prefetched of a partition stands in one queue before a retry that is due: a backlog of the
        # default's 100,000 made retries 17 s late. With the back-off above 1,000 still give 758,000/s.
        "queued.min.messages": 1_000,
        # What librdkafka may prefetch, all partitions together.
        "queued.max.messages.kbytes": 65_536,
    }


def admin(kafka: KafkaSettings) -> AdminClient:
    """Return an admin client for a cluster that answered.

    Raises `Misconfigured` with the cause when no broker does within `start_timeout_seconds`, or none ever would:
    a closed port, a wrong password, a certificate that we do not trust.
    """
    return answered_admin(connection(kafka), kafka)


def client_error_logger(kafka: KafkaSettings) -> Callable[[KafkaError], None]:
    """Return an `error_cb` that logs each cause at most once in 10 s, with what mends it."""
    limit = log.RateLimited(every=10.0)

    def on_error(error: KafkaError) -> None:
        found = causes.finding(error.code(), error.str())
        held = limit.allow(found.cause if found else error.name(), clock.monotonic())
        if held is not None:
            told = causes.sentence(found, kafka) if found else error.str()
            _log.warning("kafka client error", error=error.name(), said=told, repeated=held)

    return on_error


class Report(NamedTuple, Generic[T]):
    """What became of one sent record.

    `error` is None when all in-sync replicas have it; `appended_ms` is then the broker's own time
    and `received_ms` ours. Any error but one that names the record means: unknown, send it again.
    """

    ticket: T
    error: KafkaError | None
    appended_ms: int = 0
    received_ms: int = 0

    @property
    def record_refused(self) -> bool:
        """Whether the broker or the client refused this record for itself: no retry will help."""
        return self.error is not None and self.error.code() in _RECORD_ERRORS


_RECORD_ERRORS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG})


class Publisher(Generic[T]):
    """Sends records and hands back one report per record, never assuming one.

    Reports come from `poll()` only. `flush()` is not used: with a fatal error pending it lost a
    report here. One thread owns a publisher. After a fatal error (`failed`), `renew()` makes a new
    producer and reports everything outstanding as unknown.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._pid = os.getpid()
        self._number = 0
        self._outstanding: dict[int, T] = {}
        self._reports: list[Report[T]] = []
        self.failed = False
        self._producer = Producer(config)

    def __len__(self) -> int:
        """Return how many records have no report yet."""
        return len(self._outstanding)

    def send(
        self, ticket: T, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers, partition: int = -1
    ) -> bool:
        """Queue one record; its report will carry `ticket`. Returns False when the queue is full: poll, then again.

        Raises `RuntimeError` in a forked child: librdkafka's threads do not live there, and nothing
        would ever be delivered.
        """
        if os.getpid() != self._pid:
            message = "this publisher was made before fork(); make a new one in the child process"
            raise RuntimeError(message)
        self._number += 1
        number = self._number
        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=partial(self._delivered, number),
                headers=list(headers),
            )
        except BufferError:
            return False
        except KafkaException as refused:
            self._note(Report(ticket, refused.args[0]))
            return True
        self._outstanding[number] = ticket
        return True

    def poll(self, timeout: float = 0.0) -> list[Report[T]]:
        """Serve delivery reports, waiting up to `timeout` seconds for the first one."""
        self._producer.poll(0.0 if self._reports else timeout)
        reports, self._reports = self._reports, []
        return reports

    def renew(self) -> list[Report[T]]:
        """Drop this producer with all it holds, make a new one, and report what was outstanding as unknown."""
        self._producer.purge(in_queue=True, in_flight=True)
        self._producer.poll(0.0)
        unknown = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001 - the library's public constant has this name
        self._reports.extend(Report(ticket, unknown) for ticket in self._outstanding.values())
        self._outstanding.clear()
        self._producer = Producer(self._config)
        self.failed = False
        reports, self._reports = self._reports, []
        return reports

    def _delivered(self, number: int, error: KafkaError | None, message: Any) -> None:
        if number not in self._outstanding:  # a late report of a producer that was dropped
            return
        ticket = self._outstanding.pop(number)
        if error is None:
            self._reports.append(Report(ticket, None, message.timestamp()[1], clock.wall_ms()))
        else:
            self._note(Report(ticket, error, 0, clock.wall_ms()))

    def _note(self, report: Report[T]) -> None:
        if report.error is not None and (report.error.fatal() or report.error.code() == KafkaError._FATAL):  # noqa: SLF001
            self.failed = True
        self._reports.append(report)
