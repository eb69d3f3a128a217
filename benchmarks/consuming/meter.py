"""The clock of a contender: it runs from the first record handled to the last; standard library only."""

import itertools
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Meter:
    """Counts handled records and takes the time, the CPU time and the memory of this process.

    Start-up and joining the group are before the first record and do not count. May be used from
    several threads.
    """

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.finished = threading.Event()
        self.disorder = 0
        self._numbers = itertools.count(1)
        self._handled = 0
        self._lock = threading.Lock()
        self._last_offset: dict[Any, int] = {}
        self._before = 0
        self._began = self._ended = (0.0, 0.0)

    def begin(self) -> None:
        """Start the clock before the first record is handled, where that is long after it was there."""
        if not self._began[0]:
            self._begin(0)

    def handled(self) -> None:
        """Count one record."""
        number = next(self._numbers)  # one step of the interpreter, also among threads
        if number == 1 and not self._began[0]:
            self._begin(1)
        if number == self.calls:
            self._end()

    def handled_batch(self, count: int) -> None:
        """Count a batch of records; not to be mixed with `handled`."""
        with self._lock:
            if self._handled == 0 and not self._began[0]:
                self._begin(count)
            self._handled += count
            if self._handled == self.calls:
                self._end()

    def in_order(self, key: Any, offset: int) -> None:
        """Check that a key's records come one at a time, each once, and in the log's order; called before the work."""
        self.begin()
        if self._last_offset.get(key, -1) >= offset:
            self.disorder += 1
        self._last_offset[key] = offset

    def figures(self) -> dict[str, float]:
        """Return records/s, CPU seconds per 100,000 records, peak memory in MB, and records out of order."""
        (began, cpu_began), (ended, cpu_ended) = self._began, self._ended
        counted = self.calls - self._before
        return {
            "seconds": ended - began,
            "rate": counted / (ended - began) if ended > began else 0.0,
            "cpu": (cpu_ended - cpu_began) * 100_000 / max(counted, 1),
            "peak_mb": peak_mb(),
            "disorder": self.disorder,
        }

    def _begin(self, count: int) -> None:
        self._before = count
        self._began = (time.perf_counter(), time.process_time())

    def _end(self) -> None:
        self._ended = (time.perf_counter(), time.process_time())
        self.finished.set()


def peak_mb() -> float:
    """Return the most memory that this process has had, MB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


def memory_mb() -> float:
    """Return the memory that this process has now, MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


class MemoryMeter(Meter):
    """Also looks at the memory each time another twentieth of the records is handled."""

    def __init__(self, calls: int) -> None:
        super().__init__(calls)
        self.samples: list[float] = []
        self._every = max(1, calls // 20)
        self._counted = itertools.count(1)

    def handled(self) -> None:
        """Count one record."""
        if next(self._counted) % self._every == 0:
            self.samples.append(memory_mb())
        super().handled()
