"""Our contenders: groups as a team writes them, run by the product's own worker."""

import asyncio
import json
import signal
import sys
import threading
import time
from typing import Any

from benchmarks.consuming.meter import MemoryMeter, Meter
from benchmarks.consuming.raw import WAIT_SECONDS
from benchmarks.consuming.task import Task, answer
from consumers.runtime.group import ConsumerGroup
from orderflow.core import log
from orderflow.core.settings import load
from orderflow.testing import WorkerThread, make_group
from schemas.events import OrderCreated

_LONGEST_SECONDS = 1_200.0
_RETRY_SECONDS = 1.0
_FLAKY_ONE_IN = 100
_BLOCKED_SECONDS = 120.0


def run(task: Task) -> None:
    """Run a worker until the handler has seen the task's records."""
    meter = Meter(task.calls)
    _work(task, meter, _handler(task, meter))
    answer(meter.figures())


def flaky(task: Task) -> None:
    """Fail one record in a hundred the first time; the rate is that of first attempts, since others wait for a tier."""
    meter, firsts = Meter(task.calls), Meter(task.calls)

    def handle(event: Any, delivery: Any, _deps: Any) -> None:
        if delivery.attempt == 1:
            firsts.handled()
            if event.event_id.int % _FLAKY_ONE_IN == 0:
                raise ConnectionError("one in a hundred, the first time")
        meter.handled()

    _work(task, meter, handle)
    answer({**meter.figures(), "rate": firsts.figures()["rate"]})


def lateness(task: Task) -> None:
    """Tell how late second attempts begin, ms, while first ones still come; those whose event is due to fail."""
    meter, firsts, late = Meter(task.calls), Meter(task.calls), list[float]()

    def handle(event: Any, delivery: Any, _deps: Any) -> None:
        now = time.time()
        if delivery.attempt == 1:
            firsts.handled()
            if task.work == "always" or event.event_id.int % (_FLAKY_ONE_IN * 5) == 0:
                raise ConnectionError("the first time")
        elif task.work == "always" or not firsts.finished.is_set():
            late.append(now * 1000 - delivery.timestamp_ms - _RETRY_SECONDS * 1000)
        meter.handled()

    _work(task, meter, handle)
    late.sort()
    answer(
        {
            "disorder": 0,
            "retries": len(late),
            **{f"p{percent}_ms": late[len(late) * percent // 100] if late else 0.0 for percent in (50, 99)},
            "most_ms": late[-1] if late else 0.0,
        }
    )


def memory(task: Task) -> None:
    """Tell the memory at each twentieth of the way; `blocked` keeps the first record for most of it."""
    meter, blocked, others_done = MemoryMeter(task.calls), threading.Lock(), threading.Event()
    # The rest may be of its key, and then waits for it.
    others = iter(range(task.calls * 8 // 10, 0, -1))

    def handle(_event: Any, _delivery: Any, _deps: Any) -> None:
        if task.work == "blocked" and blocked.acquire(blocking=False):
            others_done.wait(_BLOCKED_SECONDS)
        elif next(others, 1) == 1:
            others_done.set()
        meter.handled()

    _work(task, meter, handle)
    answer({**meter.figures(), **{f"mb_{(n + 1) * 5}": size for n, size in enumerate(meter.samples)}})


def member(task: Task) -> None:
    """One of several workers: works until SIGTERM, then tells when it handled which partition's records."""
    log.configure("error", "console")
    seen: list[tuple[int, float]] = []
    stop, told = threading.Event(), threading.Lock()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def handle(_event: Any, delivery: Any, _deps: Any) -> None:
        if told.acquire(blocking=False):
            print("joined", flush=True)
        seen.append((delivery.partition, time.monotonic()))

    worker = WorkerThread(_group(task, handle), load())
    while not stop.wait(0.5):
        if worker.error is not None:
            raise worker.error
    worker.stop()
    json.dump(seen, sys.stdout)


def _work(task: Task, meter: Meter, handler: Any) -> None:
    """Run a worker until the meter has its records, then stop it as SIGTERM does."""
    log.configure("error", "console")
    worker = WorkerThread(_group(task, handler), load())
    until = time.monotonic() + _LONGEST_SECONDS
    while not meter.finished.wait(0.5):
        if worker.error is not None:
            raise worker.error
        if time.monotonic() > until:
            raise TimeoutError(f"{task.contender} did not finish")
    worker.stop()


def _group(task: Task, handler: Any) -> ConsumerGroup:
    """Return the task's group."""
    made = make_group(name=task.group, claims=task.claims)
    given = OrderCreated if task.decoded else bytes
    (made.on_batch(given) if task.style == "batch" else made.on(given))(handler)
    return made


def _handler(task: Task, meter: Meter) -> Any:
    """Return the function that a team would write."""
    if task.style == "batch":
        return lambda batch, _deps: meter.handled_batch(len(batch))
    if task.work == "nothing":
        return lambda _event, _delivery, _deps: meter.handled()

    def seconds(event: Any) -> float:
        return int(event) / 1e6 if task.work == "drawn" else WAIT_SECONDS

    async def waits(event: Any, delivery: Any, _deps: Any) -> None:
        meter.in_order(delivery.key, delivery.offset)
        await asyncio.sleep(seconds(event))
        meter.handled()

    def blocks(event: Any, delivery: Any, _deps: Any) -> None:
        meter.in_order(delivery.key, delivery.offset)
        time.sleep(seconds(event))
        meter.handled()

    return waits if task.style == "async" else blocks
