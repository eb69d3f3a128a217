"""Run a consumer group for real in a test: its topics, a worker in a thread, and what became of each event.

    with GroupHarness(group, settings) as harness:
        harness.publish(event)
        harness.wait_drained()
        assert harness.dead_letters() == []

The broker, Redis and database are real ones, named by the settings.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from consumers.runtime.assembly import run_group
from consumers.runtime.group import ConsumerGroup
from orderflow.core import clock, kafka
from orderflow.core.kafka import Headers, Publisher
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings, WorkerSettings
from orderflow.core.topics import GroupTopics, all_specs, source_spec
from schemas import codec
from schemas import headers as names
from schemas.events import Event
from schemas.headers import event_headers

_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Found:
    """One record as it stands in a topic. No headers when a name of one is not UTF-8."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    def header(self, name: str) -> str | None:
        """Return a header's text, None when it is absent or no UTF-8."""
        return names.header(self.headers, name)

    def integer(self, name: str) -> int | None:
        """Return a header's number, None when it is absent or no number."""
        return names.integer(self.headers, name)


def tuned(settings: Settings, **worker_settings: Any) -> Settings:
    """Return the settings with some of the worker's replaced, as `retry_seconds=(1, 2, 3)`."""
    worker = WorkerSettings.model_validate({**settings.worker.model_dump(), **worker_settings})
    return settings.model_copy(update={"worker": worker})


class WorkerThread:
    """One worker of a group in a thread of this process."""

    def __init__(self, group: ConsumerGroup, settings: Settings) -> None:
        self.stop_flag = Stop()
        self.error: BaseException | None = None
        self.metrics = Metrics()
        self._thread = threading.Thread(
            target=self._run, args=(group, settings), name=f"worker-{group.name}", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the worker still runs."""
        return self._thread.is_alive()

    def stop(self, timeout: float = _WAIT_SECONDS) -> None:
        """Stop as SIGTERM does, and raise what the worker raised, if anything."""
        self.stop_flag.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the worker did not stop within {timeout:g} s")
        if self.error is not None:
            raise self.error

    def _run(self, group: ConsumerGroup, settings: Settings) -> None:
        try:
            run_group(group, settings, self.stop_flag, self.metrics)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self.error = error


class GroupHarness:
    """A consumer group on real parts. Entering creates its topics, sets its positions and starts `workers` workers."""

    def __init__(self, group: ConsumerGroup, settings: Settings, *, workers: int = 1) -> None:
        self.group = group
        self.settings = settings
        self.topics = GroupTopics(settings.kafka.source_topic, group.name, settings.worker.retry_seconds)
        self.workers: list[WorkerThread] = []
        self._start_with = workers
        self._admin = AdminClient(kafka.connection(settings.kafka))
        self._silent: list[AdminClient] = []
        self._publisher: Publisher[int] = Publisher(kafka.producer_config(settings.kafka))

    def __enter__(self) -> Self:
        """Provision and start."""
        self.provision()
        for _ in range(self._start_with):
            self.start_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the workers that still run; a worker's own error is raised unless the test failed already."""
        for worker in self.workers:
            worker.stop_flag.set()
        for worker in self.workers:
            if kind is None:
                worker.stop()

    def provision(self) -> None:
        """Create the topics that are missing, and start the group at the source's log start."""
        kafka_settings = self.settings.kafka
        source = source_spec(kafka_settings.source_topic, kafka_settings.partitions, kafka_settings.max_message_bytes)
        existing = self._admin.list_topics(timeout=10).topics
        new = [
            NewTopic(spec.name, spec.partitions, kafka_settings.replication_factor, config=spec.config)
            for spec in all_specs([self.topics], source, kafka_settings.max_message_bytes)
            if spec.name not in existing
        ]
        if new:
            for created in self._admin.create_topics(new).values():
                created.result(30)
        self.wait_until(self._topics_answer, "the new topics to have leaders")
        self.start_at(dict.fromkeys(range(kafka_settings.partitions), 0))

    def start_at(self, offsets: dict[int, int]) -> None:
        """Set the stopped group's positions on the source."""
        places = [TopicPartition(self.topics.source, partition, offset) for partition, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(self.topics.group_id, places)

        def set_everywhere() -> bool:
            (answer,) = self._admin.alter_consumer_group_offsets([request]).values()
            errors = [place.error for place in answer.result(30).topic_partitions if place.error is not None]
            if any(error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART for error in errors):
                raise KafkaException(errors[0])
            return not errors

        # A topic that was just created is not known to the coordinator at once.
        self.wait_until(set_everywhere, f"{self.topics.source} to be known to the group coordinator")

    def start_worker(self, **worker_settings: Any) -> WorkerThread:
        """Start one more worker, with settings of its own if given."""
        worker = WorkerThread(self.group, tuned(self.settings, **worker_settings))
        self.workers.append(worker)
        return worker

    def publish(self, *events: Event) -> None:
        """Put events on the source topic as the relay does, and wait until all are acknowledged."""
        self.publish_raw([(str(e.order_id).encode(), codec.encode(e), event_headers(e)) for e in events])

    def publish_raw(
        self,
        records: Iterable[tuple[bytes | None, bytes | None, Headers]],
        *,
        topic: str | None = None,
        partition: int = -1,
    ) -> None:
        """Put (key, value, headers) on a topic as another producer might, and wait for the acknowledgements."""
        sent = 0
        for number, (key, value, headers) in enumerate(records):
            while not self._publisher.send(
                number, topic or self.topics.source, key=key, value=value, headers=headers, partition=partition
            ):
                self._check(self._publisher.poll(0.1))
            sent += 1
        until = clock.monotonic() + _WAIT_SECONDS
        while len(self._publisher):
            self._check(self._publisher.poll(0.1))
            if clock.monotonic() > until:
                raise TimeoutError(f"{len(self._publisher)} of {sent} records were not acknowledged")
        self._check(self._publisher.poll(0.0))

    def committed(self, topic: str | None = None) -> dict[int, int]:
        """Return the group's committed offset per partition of a topic (the source unless given)."""
        name = topic or self.topics.source
        request = ConsumerGroupTopicPartitions(self.topics.group_id)
        (answer,) = self._admin.list_consumer_group_offsets([request]).values()
        return {p.partition: p.offset for p in answer.result(10).topic_partitions if p.topic == name and p.offset >= 0}

    def ends(self, topic: str | None = None) -> dict[int, int]:
        """Return the end offset per partition of a topic (the source unless given)."""
        name = topic or self.topics.source
        spec = {TopicPartition(name, n): OffsetSpec.latest() for n in range(self.settings.kafka.partitions)}
        return {place.partition: answer.result(10).offset for place, answer in self._admin.list_offsets(spec).items()}

    def lag(self) -> int:
        """Return records not committed yet, in the source and in the group's own topics."""
        total = 0
        for topic in self.topics.subscribed:
            committed = self.committed(topic)
            total += sum(end - committed.get(partition, 0) for partition, end in self.ends(topic).items())
        return total

    def wait_drained(self, timeout: float = _WAIT_SECONDS) -> None:
        """Wait until nothing is pending anywhere; raises what a worker raised meanwhile."""
        self.wait_until(self._is_drained, f"lag of {self.topics.group_id} to be 0", timeout)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = _WAIT_SECONDS) -> None:
        """Wait for a condition; raises `TimeoutError` naming it, or what a worker raised."""
        until = clock.monotonic() + timeout
        pause = threading.Event()
        while not condition():
            for worker in self.workers:
                if worker.error is not None:
                    raise worker.error
            if clock.monotonic() > until:
                raise TimeoutError(f"waited {timeout:g} s for {what}")
            pause.wait(0.02)

    def records(self, topic: str) -> list[Found]:
        """Return every record of a topic, in offset order per partition."""
        ends = {partition: end for partition, end in self.ends(topic).items() if end}
        consumer = Consumer(
            {
                **kafka.connection(self.settings.kafka),
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        found: list[Found] = []
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
            until = clock.monotonic() + _WAIT_SECONDS
            while any(
                p.offset < ends[p.partition] for p in consumer.position([TopicPartition(topic, n) for n in ends])
            ):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    found.append(_found(message))
                if clock.monotonic() > until:
                    raise TimeoutError(f"{topic} was not read to its end within {_WAIT_SECONDS:g} s")
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def dead_letters(self) -> list[Found]:
        """Return the group's dead letters."""
        return self.records(self.topics.dlq)

    def _is_drained(self) -> bool:
        try:
            return self.lag() == 0
        except (KafkaException, TimeoutError):
            # An admin client that saw its broker die may wait for it for ever, and dropping one whose
            # requests are out ends the process: it is kept, and another one asks.
            self._silent.append(self._admin)
            self._admin = AdminClient(kafka.connection(self.settings.kafka))
            return False

    def _topics_answer(self) -> bool:
        try:
            for topic in (*self.topics.subscribed, self.topics.dlq):
                self.ends(topic)
        except KafkaException:
            return False
        return True

    @staticmethod
    def _check(reports: Sequence[kafka.Report[int]]) -> None:
        for report in reports:
            if report.error is not None:
                raise KafkaException(report.error)


def _found(message: Any) -> Found:
    return Found(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=names.of(message) or [],
    )
