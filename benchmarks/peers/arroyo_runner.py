# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The peer lives in an environment of its own, where no checker looks.
"""Arroyo: one record at a time, or batches of 500; a commit a second."""

from collections.abc import Mapping
from typing import Any

from arroyo import Partition, Topic
from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import BatchStep, CommitOffsets, ProcessingStrategyFactory, RunTask

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task, answer
from benchmarks.peers import work

BATCH = 500


def main(task: Task) -> None:
    """Read the topic."""
    meter = Meter(task.calls)
    handle = work.plain(task, meter)
    config = build_kafka_consumer_configuration(
        {},
        group_id=task.group_id,
        auto_offset_reset="error",
        bootstrap_servers=[task.bootstrap],
        override_params={"fetch.queue.backoff.ms": 20},
        enable_auto_commit=False,
    )

    def one(message: Any) -> None:
        record = message.value
        handle(record.payload.value, f"{record.partition.index}:{record.offset}" if task.claims else "")
        if meter.finished.is_set():
            processor.signal_shutdown()

    def many(message: Any) -> None:
        meter.handled_batch(len([record.payload.value for record in message.payload]))
        if meter.finished.is_set():
            processor.signal_shutdown()

    class Factory(ProcessingStrategyFactory):
        def create_with_partitions(self, commit: Any, _partitions: Mapping[Partition, int]) -> Any:
            if task.style == "batch":
                return BatchStep(BATCH, 1.0, RunTask(many, CommitOffsets(commit)))
            return RunTask(one, CommitOffsets(commit))

    processor = StreamProcessor(KafkaConsumer(config), Topic(task.topic), Factory(), ONCE_PER_SECOND)
    processor.run()
    answer(meter.figures())


if __name__ == "__main__":
    main(Task.from_arguments())
