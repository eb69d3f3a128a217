"""How long `orderflow --help` takes, beside a bare `import typer`: at most twice is the promise.

Both are run in turn, so that a busy machine slows both; the medians are compared.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 21
LIMIT = 2.0


def seconds(command: list[str]) -> float:
    """Return how long one run of the command takes."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own interpreter
    return time.perf_counter() - started


def main() -> None:
    """Measure, print both medians and their ratio; exit 1 if it is over the limit."""
    bare = [sys.executable, "-c", "import typer"]
    ours = [sys.executable, "-m", "orderflow", "--help"]
    pairs = [(seconds(bare), seconds(ours)) for _ in range(ROUNDS)]
    bare_median, ours_median = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = ours_median / bare_median
    print(f"import typer      {bare_median * 1000:6.0f} ms")
    print(f"orderflow --help  {ours_median * 1000:6.0f} ms")
    print(f"ratio             {ratio:6.2f} (limit {LIMIT:.0f})")
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    main()
