"""Start and stop of a long-running role: one stop flag, and a watchdog that ends a stuck stop."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from orderflow.core import log

_log = log.get(__name__)


class Stop:
    """A flag that SIGTERM and SIGINT set, and that loops look at."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __bool__(self) -> bool:
        """Return whether a stop was asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for a stop."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; return True at once when a stop is asked for."""
        return self._event.wait(seconds)


@contextmanager
def stop_on_signals(stop: Stop, *, budget_seconds: float) -> Iterator[Stop]:
    """Set `stop` on SIGTERM and SIGINT, and end the process `budget_seconds` after the first one.

    The watchdog exits with code 1 through `os._exit`: a stop that hangs would otherwise be ended
    by the supervisor's SIGKILL, later and without a word.
    """

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if not stop:
            watchdog = threading.Timer(budget_seconds, _give_up, (budget_seconds,))
            watchdog.daemon = True
            watchdog.start()
        stop.set()
        del number

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quiet_collector() -> None:
    """Have the cyclic collector run rarely, for a process that holds thousands of short-lived records.

    What lives since the start is looked at no more. Measured here on a worker with a handler that does
    nothing: 1.9 µs of CPU time per record with the defaults (700, 10, 10), 1.5 µs with these.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _give_up(budget_seconds: float) -> None:
    _log.error("stop took too long, exiting now", budget_seconds=budget_seconds)
    os._exit(1)
