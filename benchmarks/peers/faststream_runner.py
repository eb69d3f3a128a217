# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The peer lives in an environment of its own, where no checker looks.
"""FastStream on confluent-kafka: one record at a time, or batches of 500; acknowledged once a second, after the work.

Its concurrent subscriber acknowledges before the work and keeps no order, so it is not here.
"""

import asyncio
import time
from typing import Any

import uvloop
from faststream import AckPolicy
from faststream.confluent import KafkaBroker, KafkaMessage

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task, answer
from benchmarks.peers import work

BATCH = 500
COMMIT_SECONDS = 1.0


async def main(task: Task) -> None:
    """Read the topic."""
    meter, finished = Meter(task.calls), asyncio.Event()
    handle = work.awaited(task, meter)
    broker = KafkaBroker(task.bootstrap, config={"fetch.queue.backoff.ms": 20}, logger=None)
    shared: dict[str, Any] = {"group_id": task.group_id, "auto_offset_reset": "error", "ack_policy": AckPolicy.MANUAL}
    commit_at = 0.0

    async def acknowledge(message: KafkaMessage) -> None:
        nonlocal commit_at
        if meter.finished.is_set() or time.monotonic() > commit_at:
            commit_at = time.monotonic() + COMMIT_SECONDS
            await message.ack()
        if meter.finished.is_set():
            finished.set()

    if task.style == "batch":

        @broker.subscriber(task.topic, batch=True, max_records=BATCH, decoder=_bodies, **shared)
        async def many(bodies: list[bytes], message: KafkaMessage) -> None:
            meter.handled_batch(len(bodies))
            await acknowledge(message)

    else:

        @broker.subscriber(task.topic, decoder=_body, **shared)
        async def one(body: bytes, message: KafkaMessage) -> None:
            raw = message.raw_message
            await handle(body, f"{raw.partition()}:{raw.offset()}" if task.claims else "")
            await acknowledge(message)

    await broker.start()
    await finished.wait()
    await asyncio.sleep(1)  # the acknowledgement is sent, and nothing tells when it is there
    await broker.stop()
    answer(meter.figures())


async def _body(message: Any) -> Any:
    return message.body


async def _bodies(message: Any) -> Any:
    return message.body


if __name__ == "__main__":
    uvloop.run(main(Task.from_arguments()))
