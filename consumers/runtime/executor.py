"""The handler pool: daemon threads, and one queue through which finished work comes back."""

import threading
from queue import Empty, SimpleQueue

from consumers.runtime.handling import Handling, Result
from consumers.runtime.lanes import Run


class Executor:
    """`slots` threads that handle runs.

    The threads are daemons: Python cannot stop a handler that hangs, and a process that must leave
    must not wait for it.
    """

    def __init__(self, handling: Handling, *, slots: int) -> None:
        self._handling = handling
        self._work: SimpleQueue[Run | None] = SimpleQueue()
        self._results: SimpleQueue[Result | None] = SimpleQueue()
        self.busy = 0
        self._threads = [threading.Thread(target=self._serve, name=f"handler-{n}", daemon=True) for n in range(slots)]
        for thread in self._threads:
            thread.start()

    def start(self, run: Run) -> None:
        """Hand over one run; each record comes back as one result. `busy` counts runs whose thread is not back."""
        self.busy += 1
        self._work.put(run)

    def drain(self, timeout: float = 0.0) -> list[Result]:
        """Return the finished results, waiting up to `timeout` seconds for the first one."""
        results: list[Result] = []
        try:
            self._note(self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait(), results)
            while True:
                self._note(self._results.get_nowait(), results)
        except Empty:
            return results

    def _note(self, result: Result | None, results: list[Result]) -> None:
        if result is None:
            self.busy -= 1
        else:
            results.append(result)

    def stop(self) -> None:
        """Let idle threads end; one that hangs is left behind."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while (run := self._work.get()) is not None:
            for result in self._handling.handle(run):
                self._results.put(result)
            self._results.put(None)
