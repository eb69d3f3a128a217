"""`async def` handlers in one event loop, in a thread of its own; runs are handed over in batches."""

import asyncio
import threading
from collections import deque
from contextlib import AbstractAsyncContextManager
from queue import Empty, SimpleQueue
from typing import Any

import uvloop

from consumers.runtime.executors.interface import Running
from consumers.runtime.handling import Call, Handling, Result
from consumers.runtime.lanes import Run
from orderflow.core import clock

_LOOK_SECONDS = 0.1  # how often calls past their deadline are looked for


class EventLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        """Start it."""
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="handlers", daemon=True)
        self._thread.start()

    def enter(self, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Open an asynchronous context manager in the loop; raises what it raises."""
        return asyncio.run_coroutine_threadsafe(manager.__aenter__(), self.loop).result()

    def leave(self, manager: AbstractAsyncContextManager[Any], timeout: float) -> None:
        """Close it; raises `TimeoutError` when that takes longer than `timeout` seconds."""
        asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), self.loop).result(timeout)

    def stop(self) -> None:
        """Stop the loop; a handler that blocks it is left behind."""
        self.loop.call_soon_threadsafe(self.loop.stop)


class LoopExecutor:
    """Up to `slots` handler calls at a time, each a task of the loop.

    A call past its deadline is cancelled, which no thread could be. With `ahead`, as many runs again wait
    in the loop for a free slot, so that the next starts the moment that one ends; not for a group with
    claims, which are taken for what gets a slot now.
    """

    def __init__(self, handling: Handling, loop: EventLoop, *, slots: int, deadline: float, ahead: bool) -> None:
        self._handling = handling
        self._loop = loop.loop
        self._slots = slots
        self._deadline = deadline
        self._most = 2 * slots if ahead else slots
        self._todo: deque[Run] = deque()
        self._under_way: dict[asyncio.Task[None], Running] = {}
        self._finished: list[Result] = []
        self._finished_runs = 0
        self._flushes = False
        self._results: SimpleQueue[tuple[list[Result], int]] = SimpleQueue()
        self.busy = 0
        self._loop.call_soon_threadsafe(self._cancel_the_late)

    def room(self) -> int:
        """Return how many more runs it would take now."""
        return self._most - self.busy

    def start(self, runs: list[Run]) -> None:
        """Hand over runs; each of their records comes back in one result."""
        self.busy += len(runs)
        self._loop.call_soon_threadsafe(self._begin, runs)

    def drain(self, timeout: float = 0.0) -> list[Result]:
        """Return finished results, waiting up to `timeout` seconds for the first."""
        finished: list[Result] = []
        try:
            results, runs = self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait()
            while True:
                finished += results
                self.busy -= runs
                results, runs = self._results.get_nowait()
        except Empty:
            return finished

    def running(self) -> list[Running]:
        """Return the calls under way."""
        return list(self._under_way.values())

    def stop(self) -> None:
        """Nothing to end: the loop belongs to whoever made it."""

    def _begin(self, runs: list[Run]) -> None:
        self._todo.extend(runs)
        while self._todo and len(self._under_way) < self._slots:
            run = self._todo.popleft()
            under_way = Running(None, clock.monotonic())
            task = self._loop.create_task(self._run(run, under_way))
            self._under_way[task] = under_way

    async def _run(self, run: Run, under_way: Running) -> None:
        # All tasks add to one list, so that what ends in one round of the loop comes back as one result.
        calls = self._handling.calls([run], self._finished)
        call: Call | None = next(calls, None)
        while call is not None:
            under_way.call, under_way.began = call, clock.monotonic()
            handler, arguments = call
            returned, error = None, None
            try:
                returned = await handler(*arguments)
            except BaseException as raised:  # noqa: BLE001 - what a handler raises is a result, a cancellation too
                error = raised
                _task().uncancel()
            try:
                call = calls.send((returned, error))
            except StopIteration:
                call = None
            self._flush_soon()
        self._finished_runs += 1
        self._flush_soon()
        del self._under_way[_task()]
        self._begin([])

    def _flush_soon(self) -> None:
        """Hand over what has ended in this round of the loop all at once: each hand-over wakes a thread."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        self._results.put((self._finished.copy(), self._finished_runs))
        self._finished.clear()
        self._finished_runs = 0

    def _cancel_the_late(self) -> None:
        late = clock.monotonic() - self._deadline
        for task, under_way in self._under_way.items():
            if under_way.call is not None and under_way.began < late and not task.cancelling():
                task.cancel()
        self._loop.call_later(_LOOK_SECONDS, self._cancel_the_late)


def _task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - called by one
    return task
