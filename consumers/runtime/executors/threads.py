"""Plain functions in threads: one shared queue of runs, and as many threads at it as the handlers need."""

import threading
from collections import deque
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from consumers.runtime.executors.interface import FAST_SECONDS, Running
from consumers.runtime.handling import Call, Handling, Result
from consumers.runtime.lanes import Run
from orderflow.core import clock

_FLUSH_SECONDS = 0.005  # how long a thread may keep finished work to itself
_AHEAD_SECONDS = 0.02  # how much work of fast handlers may wait in the queue when no claims are held for it
_AHEAD_RUNS = 2_000
_GO = object()


class ThreadExecutor:
    """Up to `slots` daemon threads at one queue of runs.

    A thread takes run after run until none is left, so that work which one of them would wait for is
    taken by the next. While the group's handlers are fast, one thread is woken for a whole batch: a
    wake-up for each record costs more than such a handler. `ahead` lets more runs wait than there are slots;
    not for a group with claims, which are taken for what gets a slot now.
    """

    def __init__(self, handling: Handling, *, slots: int, ahead: bool) -> None:
        """Start no thread before there is work for it."""
        self._handling = handling
        self._slots = slots
        self._ahead = ahead
        self._todo: deque[Run] = deque()
        self._wake: SimpleQueue[object] = SimpleQueue()
        self._results: SimpleQueue[tuple[list[Result], int, bool]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._awake = 0
        self._hands: dict[int, _Hand] = {}
        self._mean_seconds = 1.0  # slow until known better: then nobody waits behind a slow one
        self._stuck_at = -1
        self.busy = 0

    def room(self) -> int:
        """Return how many more runs it would take now."""
        if self._ahead and self._mean_seconds < FAST_SECONDS:
            return min(_AHEAD_RUNS, int(_AHEAD_SECONDS / max(self._mean_seconds, 1e-6))) - self.busy
        return self._slots - self.busy

    def start(self, runs: list[Run]) -> None:
        """Hand over runs; each of their records comes back in one result."""
        self.busy += len(runs)
        self._todo.extend(runs)
        self._wake_threads()

    def drain(self, timeout: float = 0.0) -> list[Result]:
        """Return finished results, waiting up to `timeout` seconds for the first."""
        finished: list[Result] = []
        try:
            self._take(self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait(), finished)
            while True:
                self._take(self._results.get_nowait(), finished)
        except Empty:
            if not finished:
                self._take_from_the_stuck(finished)
        self._learn(finished)
        if self._todo:
            self._wake_threads()
        return finished

    def running(self) -> list[Running]:
        """Return the calls under way."""
        return [hand.under_way for hand in list(self._hands.values())]

    def stop(self) -> None:
        """Let idle threads end; one that hangs is left behind, for Python cannot stop it."""
        for _ in self._threads:
            self._wake.put(None)

    def _take(self, batch: tuple[list[Result], int, bool], finished: list[Result]) -> None:
        results, runs, asleep = batch
        finished += results
        self.busy -= runs
        self._awake -= asleep

    def _learn(self, finished: list[Result]) -> None:
        calls = sum(len(result.seconds) for result in finished)
        if calls:
            mean = sum(sum(result.seconds) for result in finished) / calls
            self._mean_seconds += (mean - self._mean_seconds) * min(1.0, 0.02 * calls)

    def _wake_threads(self) -> None:
        waiting = len(self._todo)
        if self._mean_seconds < FAST_SECONDS and self._awake and waiting != self._stuck_at:
            wanted = 0  # whoever is awake gets on
        elif self._mean_seconds < FAST_SECONDS:
            wanted = 1
        else:
            wanted = waiting
        self._stuck_at = waiting
        for _ in range(min(wanted, self._slots - self._awake)):
            if self._awake == len(self._threads):
                name = f"handler-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
                self._threads[-1].start()
            self._awake += 1
            self._wake.put(_GO)

    def _serve(self) -> None:
        while self._wake.get() is _GO:
            self._work(_Hand())

    def _work(self, hand: "_Hand") -> None:
        """Take run after run until none is left, and hand back what is finished every now and then."""
        self._hands[threading.get_ident()] = hand
        calls = self._handling.calls(self._runs(hand), hand.results)
        flush_at = hand.under_way.began + _FLUSH_SECONDS
        call: Call | None = next(calls, None)
        while call is not None:
            hand.under_way.call = call
            now = hand.under_way.began = clock.monotonic()
            if now >= flush_at and hand.results:
                self._results.put((*hand.take(), False))
                flush_at = now + _FLUSH_SECONDS
            handler, arguments = call
            returned = error = None
            hand.open.append(None)
            try:
                returned = handler(*arguments)
            except BaseException as raised:  # noqa: BLE001 - also SystemExit: it would end the thread without a word
                error = raised
            try:
                hand.open.pop()
            except IndexError:
                with hand.taking:  # the worker's thread is at it
                    pass
            try:
                call = calls.send((returned, error))
            except StopIteration:
                call = None
        del self._hands[threading.get_ident()]
        self._results.put((*hand.take(), True))

    def _runs(self, hand: "_Hand") -> Iterator[Run]:
        while self._todo:
            try:
                run = self._todo.popleft()
            except IndexError:  # another thread was quicker
                return
            yield run
            hand.runs += 1

    def _take_from_the_stuck(self, finished: list[Result]) -> None:
        """Take what threads finished before the call that keeps them now."""
        late = clock.monotonic() - 2 * _FLUSH_SECONDS
        for hand in list(self._hands.values()):
            if hand.under_way.began > late or not hand.results:
                continue
            with hand.taking:
                try:
                    hand.open.pop()
                except IndexError:  # it is back
                    continue
                self._take((*hand.take(), False), finished)


class _Hand:
    """What one thread has in hand: the call under way, and what it finished before and has not handed back.

    `open` holds something while the thread is inside a handler; whoever removes it may take the results.
    """

    __slots__ = ("open", "results", "runs", "taking", "under_way")

    def __init__(self) -> None:
        self.under_way = Running(None, clock.monotonic())
        self.results: list[Result] = []
        self.runs = 0
        self.open: deque[None] = deque()
        self.taking = threading.Lock()

    def take(self) -> tuple[list[Result], int]:
        results, runs = self.results.copy(), self.runs
        self.results.clear()
        self.runs = 0
        return results, runs
