"""How long `orderflow demo` takes and how much memory its processes share out: at most 60 s and 1.5 GiB, warm.

Memory is PSS (each shared page counted once in all), summed over the whole process tree and sampled;
where the system does not tell PSS, the sum of the resident sets, which is more. The run before the
measured one fills the caches.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil

SECONDS_LIMIT = 60.0
BYTES_LIMIT = 1.5 * 1024**3
SAMPLE_SECONDS = 0.25
MIB = 1024**2


@dataclass
class Measured:
    """One run; `cpu_seconds` of all its processes, `peak` in bytes and by process."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak: float = 0.0
    peak_by_process: Counter[str] = field(default_factory=Counter)


def name_of(process: psutil.Process) -> str:
    """Return what a process is: a role's verb, or the program."""
    arguments = process.cmdline()
    if arguments[1:3] == ["-m", "orderflow"]:
        return " ".join(["orderflow", *arguments[3:]]).removesuffix(" --json")
    return arguments[2] if arguments[1:2] == ["-m"] else process.name()


def memory(root: psutil.Process) -> Counter[str]:
    """Return the memory of the tree in bytes, by process."""
    found: Counter[str] = Counter()
    for process in [root, *root.children(recursive=True)]:
        try:
            told = process.memory_full_info()
            found[name_of(process)] += getattr(told, "pss", told.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def measure() -> Measured:
    """Run the demo once. Raises `CalledProcessError` when it fails."""
    measured = Measured()
    command = [sys.executable, "-m", "orderflow", "demo", "--json"]
    before = _children_cpu_seconds()
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as demo:  # noqa: S603 - ours
        root = psutil.Process(demo.pid)
        while demo.poll() is None:
            found = memory(root)
            if found.total() > measured.peak:
                measured.peak, measured.peak_by_process = found.total(), found
            time.sleep(SAMPLE_SECONDS)
        assert demo.stdout is not None
        told = demo.stdout.read()
    measured.seconds = time.perf_counter() - started
    measured.cpu_seconds = _children_cpu_seconds() - before
    if demo.returncode:
        raise subprocess.CalledProcessError(demo.returncode, command, told)
    assert json.loads(told)["right"] is True
    return measured


def _children_cpu_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)


def main() -> None:
    """Measure a warm run, print it, exit 1 if it is over a limit."""
    measure()
    measured = measure()
    load = psutil.getloadavg()[0]
    print(f"whole demo   {measured.seconds:6.1f} s  (limit {SECONDS_LIMIT:.0f} s; load of the machine {load:.1f})")
    print(f"CPU          {measured.cpu_seconds:6.1f} s  on {psutil.cpu_count()} cores")
    print(f"peak memory  {measured.peak / MIB:6.0f} MiB  (limit {BYTES_LIMIT / MIB:.0f} MiB)")
    for name, size in measured.peak_by_process.most_common():
        print(f"             {size / MIB:6.0f} MiB  {name}")
    sys.exit(measured.seconds > SECONDS_LIMIT or measured.peak > BYTES_LIMIT)


if __name__ == "__main__":
    main()
