# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The peer lives in an environment of its own, where no checker looks.
"""Pyrallel Consumer: a coroutine a record, many in flight, the order of a key kept."""

import asyncio
import logging
from typing import Any

import uvloop
from pyrallel_consumer import KafkaConfig, PyrallelConsumer
from pyrallel_consumer.config import ExecutionConfig, ParallelConsumerConfig
from pyrallel_consumer.dto import ExecutionMode, OrderingMode

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task, answer
from benchmarks.peers import work

OWN_IN_FLIGHT = 1_000  # its default


async def main(task: Task) -> None:
    """Read the topic."""
    meter = Meter(task.calls)
    handle = work.awaited(task, meter)
    in_flight = task.in_flight if task.work != "nothing" else OWN_IN_FLIGHT
    config = KafkaConfig(
        BOOTSTRAP_SERVERS=[task.bootstrap],
        CONSUMER_GROUP=task.group_id,
        dlq_enabled=False,
        parallel_consumer=ParallelConsumerConfig(
            ordering_mode=OrderingMode.KEY_HASH,
            queue_max_messages=10_000,
            execution=ExecutionConfig(mode=ExecutionMode.ASYNC, max_in_flight=in_flight),
        ),
    )

    async def one(item: Any) -> None:
        if task.work != "nothing":
            meter.in_order((item.tp.partition, item.key), item.offset)
        await handle(item.payload, f"{item.tp.partition}:{item.offset}" if task.claims else "")

    consumer = PyrallelConsumer(config, one, task.topic)
    await consumer.start()
    while not meter.finished.is_set():  # noqa: ASYNC110 - the meter knows no event loop
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # the last commits
    await consumer.stop()
    answer(meter.figures())


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(main(Task.from_arguments()))
