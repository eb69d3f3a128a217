"""Break the product in the ways of `mutants.toml`, one at a time, and see that a named test of each fails.

    python tests/mutants/run.py [WORD ...]     only mutants whose name or file has one of the words
    python tests/mutants/run.py --check        only see whether each still applies
    python tests/mutants/run.py --chaos        those that name a chaos run as well: minutes each

Two run side by side, each in a copy of the tree and with a local stack of its own, which starts when a test first
needs it (`ORDERFLOW_TEST_STACK=FOLDER/.orderflow` joins a running one: then one at a time). Exits 0 when every mutant
was caught.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from rich.console import Console
from rich.markup import escape

from orderflow.ops.stack.stack import LocalStack

TREE = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
STACK_VARIABLE = "ORDERFLOW_TEST_STACK"
SIDE_BY_SIDE = 2
TESTS_FAILED = 1  # pytest's exit code, and that of a chaos run with findings; any other but 0 means: could not run
MOST_CHAOS_SECONDS = 180
# Tests that ask for no stack; starting Kafka for them would cost more than they do.
WITHOUT_STACK = ("tests/unit/", "tests/model/")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
OWN_PACKAGES = """
from pathlib import Path
from orderflow.core.rootcheck import foreign_root_packages
foreign = foreign_root_packages(Path.cwd())
assert not foreign, f"the copy would not be tested: {foreign}"
"""


@dataclass(frozen=True)
class Mutant:
    """One broken build: in `file`, `old` (which stands there exactly once) becomes `new`.

    Then one of `tests` fails, or a chaos run of so many seconds with that seed finds something.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    chaos: tuple[int, int] | None = None  # seconds, seed

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Read one entry of the table; `test` is one test or a list, any of which may catch it."""
        test = entry.pop("test", ())
        chaos = entry.pop("chaos", None)
        tests = (test,) if isinstance(test, str) else tuple(test)
        return cls(**entry, tests=tests, chaos=(chaos["seconds"], chaos["seed"]) if chaos else None)

    def problem(self) -> str | None:
        """Say why it does not apply to the tree as it is, None when it does."""
        path = TREE / self.file
        if not path.is_file():
            return f"{self.file} is gone"
        times = path.read_text(encoding="utf-8").count(self.old)
        if times != 1:
            return f"its code stands {times} times in {self.file}, not once: the code has changed, change the mutant"
        if not self.tests and self.chaos is None:
            return "it names no test"
        if self.chaos is not None and not 0 < self.chaos[0] <= MOST_CHAOS_SECONDS:
            return f"a chaos run takes 1 to {MOST_CHAOS_SECONDS} s"
        return next((problem for test in self.tests if (problem := _missing(test))), None)

    @contextlib.contextmanager
    def applied(self, copy: Path) -> Iterator[None]:
        """Break the copy, and mend it again."""
        path = copy / self.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole.replace(self.old, self.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(whole, encoding="utf-8")


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant; `caught_by` is empty when nothing did, `said` is then what the tests printed."""

    mutant: Mutant
    caught_by: str
    seconds: float
    said: str
    ran: bool = True

    @property
    def word(self) -> str:
        """One word and its colour."""
        return "[green]caught[/]" if self.caught_by else "[red]SURVIVED[/]" if self.ran else "[red]no test ran[/]"


class Lane:
    """A copy of the tree, and a stack for its tests once one needs it. One thread owns it."""

    def __init__(self, folder: Path, joined: Path | None) -> None:
        self._copy = folder / "tree"
        self._stack_folder = folder / "stack"
        self._stack = joined
        self._running = contextlib.ExitStack()
        _copy_tree(self._copy)
        subprocess.run([sys.executable, "-c", OWN_PACKAGES], cwd=self._copy, env=self._environment(), check=True)

    def close(self) -> None:
        """Stop its stack, if it has one of its own."""
        self._running.close()

    def judge(self, mutant: Mutant) -> Verdict:
        """Break the copy and run what the mutant names, up to the first that catches it."""
        began = time.monotonic()
        with mutant.applied(self._copy):
            verdict = self._pytest_catches(mutant, began)
            if not verdict.caught_by and mutant.chaos is not None:
                verdict = self._chaos_catches(mutant, mutant.chaos, began)
        return verdict

    def passes(self, tests: Sequence[str]) -> tuple[bool, str]:
        """Run tests on the tree as it is; a test that fails anyway would catch anything."""
        code, said = self._pytest(tests, stop_at_first=False)
        return code == 0, said

    def _pytest_catches(self, mutant: Mutant, began: float) -> Verdict:
        if not mutant.tests:
            return Verdict(mutant, "", 0.0, "")
        code, said = self._pytest(mutant.tests, stop_at_first=True)
        found = FAILED.search(said)
        caught_by = (found.group(1) if found else mutant.tests[0]) if code == TESTS_FAILED else ""
        return Verdict(mutant, caught_by, time.monotonic() - began, said, ran=code in {0, TESTS_FAILED})

    def _chaos_catches(self, mutant: Mutant, chaos: tuple[int, int], began: float) -> Verdict:
        seconds, seed = chaos
        command = ["-m", "tests.chaos.run", "--seconds", str(seconds), "--seed", str(seed)]
        code, said = self._run(command)
        caught_by = f"chaos, seed {seed}" if code == TESTS_FAILED else ""
        return Verdict(mutant, caught_by, time.monotonic() - began, said, ran=code in {0, TESTS_FAILED})

    def _pytest(self, tests: Sequence[str], *, stop_at_first: bool) -> tuple[int, str]:
        if self._stack is None and not all(test.startswith(WITHOUT_STACK) for test in tests):
            started = self._running.enter_context(LocalStack.temporary(self._stack_folder))
            self._stack = started.state_dir
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "-rfE", "-m", "", "--short"]
        # One Redis will do: what is broken here is broken on both.
        some = ["-k", "not redis-server", "-o", "timeout=60", *(["-x"] if stop_at_first else [])]
        return self._run([*command, *some, *tests])

    def _run(self, arguments: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._copy,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ORDERFLOW_")}
        stack = {} if self._stack is None else {STACK_VARIABLE: str(self._stack)}
        # Before site-packages, where the editable install points at the original. No bytecode: two
        # versions of a file that are written within a second have equal time stamps.
        return kept | {"PYTHONPATH": str(self._copy), "PYTHONDONTWRITEBYTECODE": "1"} | stack


def load() -> list[Mutant]:
    """Return the table."""
    return [Mutant.of(entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]]


def main() -> int:
    """Run; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("words", nargs="*")
    options.add_argument("--check", action="store_true")
    options.add_argument("--chaos", action="store_true")
    asked = options.parse_args()
    console = Console(soft_wrap=True)
    chosen = [
        mutant
        for mutant in load()
        if not asked.words or any(word.lower() in f"{mutant.name} {mutant.file}".lower() for word in asked.words)
    ]
    stale = {mutant.name: problem for mutant in chosen if (problem := mutant.problem())}
    for name, problem in stale.items():
        console.print(f"[red]{name}[/]: {problem}", highlight=False)
    if stale or asked.check or not chosen:
        return 1 if stale or not chosen else 0
    if not asked.chaos:
        left_out = [mutant for mutant in chosen if not mutant.tests]
        chosen = [mutant for mutant in chosen if mutant.tests]
        if left_out:
            console.print(f"{len(left_out)} mutants are for a chaos run only: --chaos runs them, too")
    chosen.sort(key=lambda mutant: mutant.file)
    named = os.environ.get(STACK_VARIABLE)
    joined = None if named in {None, "", "docker", "local"} else named
    with tempfile.TemporaryDirectory(prefix="orderflow-mutants-") as folder, contextlib.ExitStack() as closing:
        lanes = []
        for number in range(1 if joined else min(SIDE_BY_SIDE, len(chosen))):
            place = Path(folder) / str(number)
            place.mkdir()
            lanes.append(Lane(place, Path(joined) if joined else None))
            closing.callback(lanes[-1].close)
        return _all(chosen, lanes, console)


def _all(chosen: list[Mutant], lanes: list[Lane], console: Console) -> int:
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    console.print(f"{len(chosen)} mutants, {len(lanes)} side by side; their {len(tests)} tests on the tree as it is …")
    with ThreadPoolExecutor(len(lanes)) as pool:
        # Whole files each: what a file's tests share is started once.
        files = sorted({test.partition("::")[0] for test in tests})
        shares = [set(files[number :: len(lanes)]) for number in range(len(lanes))]
        parts = [[test for test in tests if test.partition("::")[0] in share] for share in shares]
        for passed, said in pool.map(lambda lane, part: lane.passes(part) if part else (True, ""), lanes, parts):
            if not passed:
                console.print(said, markup=False, highlight=False)
                console.print("[red]these must pass before any mutant means something[/]")
                return 1
        waiting: SimpleQueue[Mutant] = SimpleQueue()
        for mutant in chosen:
            waiting.put(mutant)
        done: list[Verdict] = []
        try:
            list(pool.map(lambda lane: _work(lane, waiting, done, len(chosen), console), lanes))
        except BaseException:
            with contextlib.suppress(Empty):
                while True:
                    waiting.get_nowait()
            raise
    return _told(done, console)


def _work(lane: Lane, waiting: "SimpleQueue[Mutant]", done: list[Verdict], of: int, console: Console) -> None:
    while True:
        try:
            mutant = waiting.get_nowait()
        except Empty:
            return
        verdict = lane.judge(mutant)
        done.append(verdict)
        if not verdict.caught_by:
            console.print(verdict.said, markup=False, highlight=False)
        told = f"{len(done):3} of {of}  {verdict.word}  {escape(mutant.name)} ({verdict.seconds:.0f} s)"
        console.print(told, highlight=False)


def _told(done: list[Verdict], console: Console) -> int:
    verdicts = sorted(done, key=lambda verdict: (verdict.mutant.file, verdict.mutant.name))
    names = max(len(verdict.mutant.name) for verdict in verdicts)
    files = max(len(verdict.mutant.file) for verdict in verdicts)
    # No folding: each mutant is one line, also in a pipe.
    for verdict in verdicts:
        by = escape(verdict.caught_by.removeprefix("tests/")) or verdict.word
        told = f"{verdict.mutant.name:{names}}  {verdict.mutant.file:{files}}  {verdict.seconds:4.0f} s  {by}"
        console.print(told, highlight=False)
    caught = sum(bool(verdict.caught_by) for verdict in done)
    console.print(f"{caught} of {len(done)} caught in {sum(verdict.seconds for verdict in done):.0f} s of tests")
    return 0 if caught == len(done) else 1


def _missing(test: str) -> str | None:
    """Say what of a named test is not there."""
    file, _, function = test.partition("::")
    if not (TREE / file).is_file():
        return f"{file} is gone"
    name = function.partition("[")[0]
    if name and f"def {name}(" not in (TREE / file).read_text(encoding="utf-8"):
        return f"{file} has no {name}"
    return None


def _copy_tree(copy: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TREE,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = TREE / name
        if source.is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name)


if __name__ == "__main__":
    sys.exit(main())
