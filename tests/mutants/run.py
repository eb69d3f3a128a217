"""Break the product in the ways of `mutants.toml`, one at a time, and see that the named test of each fails.

    python tests/mutants/run.py [WORD ...]     only mutants whose name has one of the words
    python tests/mutants/run.py --check        only see whether each still applies

The work is done in a copy of the tree; the tests share one local stack (`ORDERFLOW_TEST_STACK=FOLDER` joins a
running one). Exits 0 when every mutant was caught.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orderflow.ops.stack.stack import LocalStack

TREE = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
STACK_VARIABLE = "ORDERFLOW_TEST_STACK"
TESTS_FAILED = 1  # pytest's exit code; any other that is not 0 means that the tests could not run
OWN_PACKAGES = """
from pathlib import Path
from orderflow.core.rootcheck import foreign_root_packages
foreign = foreign_root_packages(Path.cwd())
assert not foreign, f"the copy would not be tested: {foreign}"
"""


@dataclass(frozen=True)
class Mutant:
    """One broken build: in `file`, `old` (which stands there exactly once) becomes `new`; then `test` fails."""

    name: str
    file: str
    old: str
    new: str
    test: str

    def problem(self) -> str | None:
        """Say why it does not apply to the tree as it is, None when it does."""
        path = TREE / self.file
        if not path.is_file():
            return f"{self.file} is gone"
        times = path.read_text(encoding="utf-8").count(self.old)
        if times != 1:
            return f"its code stands {times} times in {self.file}, not once: the code has changed, change the mutant"
        test_file, _, function = self.test.partition("::")
        if not (TREE / test_file).is_file():
            return f"{test_file} is gone"
        if function and f"def {function}(" not in (TREE / test_file).read_text(encoding="utf-8"):
            return f"{test_file} has no {function}"
        return None

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


def load() -> list[Mutant]:
    """Return the table."""
    return [Mutant(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]]


def main() -> int:
    """Run; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("words", nargs="*")
    options.add_argument("--check", action="store_true")
    asked = options.parse_args()
    console = Console()
    chosen = [m for m in load() if not asked.words or any(word.lower() in m.name.lower() for word in asked.words)]
    stale = {mutant.name: problem for mutant in chosen if (problem := mutant.problem())}
    for name, problem in stale.items():
        console.print(f"[red]{name}[/]: {problem}", highlight=False)
    if stale or asked.check or not chosen:
        return 1 if stale or not chosen else 0
    with tempfile.TemporaryDirectory(prefix="orderflow-mutants-") as folder, _stack(Path(folder)) as stack:
        copy = Path(folder) / "tree"
        _copy_tree(copy)
        subprocess.run([sys.executable, "-c", OWN_PACKAGES], cwd=copy, env=_environment(copy, stack), check=True)
        # A test that fails anyway would catch anything.
        console.print(f"{len(chosen)} mutants; their tests on the tree as it is first …")
        code, said = _pytest(copy, stack, sorted({mutant.test for mutant in chosen}))
        if code != 0:
            console.print(said, markup=False, highlight=False)
            console.print("[red]these must pass before any mutant means something[/]")
            return 1
        return _judge(chosen, copy, stack, console)


def _judge(chosen: list[Mutant], copy: Path, stack: Path, console: Console) -> int:
    table = Table("mutant", "file", "s", "")
    survived = 0
    for mutant in chosen:
        began = time.monotonic()
        with mutant.applied(copy):
            code, said = _pytest(copy, stack, [mutant.test])
        seconds = f"{time.monotonic() - began:.0f}"
        verdict = (
            "[green]caught[/]" if code == TESTS_FAILED else "[red]SURVIVED[/]" if code == 0 else "[red]no test ran[/]"
        )
        if code != TESTS_FAILED:
            survived += 1
            console.print(said, markup=False, highlight=False)
        console.print(f"{verdict}  {mutant.name} ({seconds} s)", highlight=False)
        table.add_row(mutant.name, mutant.file, seconds, verdict)
    console.print(table)
    console.print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return 1 if survived else 0


def _pytest(copy: Path, stack: Path, tests: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "-rN", "-m", "", "--short"]
    # One Redis will do: what is broken here is broken on both.
    some = ["-k", "not redis-server", "-o", "timeout=60", *(["-x"] if len(tests) == 1 else [])]
    done = subprocess.run(
        [*command, *some, *tests],
        cwd=copy,
        env=_environment(copy, stack),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def _environment(copy: Path, stack: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORDERFLOW_")}
    # Before site-packages, where the editable install points at the original. No bytecode: two
    # versions of a file that are written within a second have equal time stamps.
    return kept | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", STACK_VARIABLE: str(stack)}


@contextlib.contextmanager
def _stack(folder: Path) -> Iterator[Path]:
    """The folder of one running stack for all the tests."""
    joined = os.environ.get(STACK_VARIABLE)
    if joined:
        yield Path(joined)
        return
    with LocalStack.temporary(folder / "stack") as stack:
        yield stack.state_dir


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
