"""A whole shop under faults of every kind, and the proof of what it promises.

    python -m tests.chaos.run [--seconds 120] [--seed 1] [--json] [--tiers 1,5,30] [--rate 15]

The seed alone decides which fault strikes when. Afterwards everything is mended, the groups work off what is left,
and a checker that shares no code with the product looks for anything lost, doubled, early or altered. Exits with
0 when all is right, 1 with findings, 130 when it was interrupted. The report is kept in a file.
"""

import argparse
import json
import pickle
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.evidence import gather
from tests.chaos.load import Load
from tests.chaos.roles import Exit
from tests.chaos.schedule import Planned, plan
from tests.chaos.strikes import Strikes
from tests.chaos.world import GROUPS, Shape, World
from tests.checker.check import Verdict, check
from tests.checker.facts import Fault, Place
from tests.checker.findings import Finding
from tests.checker.readers import Cluster, Tables

DRAIN_SECONDS = 180.0
READY_SECONDS = 120.0
# After a server came back, a process that could not start without it may still end.
AFTERMATH_SECONDS = 15.0
SHOWN_PER_RULE = 3
GARBAGE = (b"", b"no frame at all", b"\x00\x00\x01\x86\xa1\x02 cut short")

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is: the seed and the seconds decide the schedule."""

    seed: int = 1
    seconds: float = 120.0
    rate: float = 15.0
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found."""

    options: Options
    verdict: Verdict
    done: Sequence[str]
    failed: Sequence[str]
    exits: Sequence[Exit]
    refused: dict[int, int]
    acks: int
    events: int
    drained: bool
    took: dict[str, float]

    @property
    def clean(self) -> bool:
        return self.verdict.clean and self.drained and not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "clean": self.clean,
            "promises": self.acks,
            "events": self.events,
            "twice_in_the_topic": self.verdict.doubled_in_topic,
            "drained": self.drained,
            "groups": [asdict(line) for line in self.verdict.lines],
            "findings": [asdict(finding) | {"says": str(finding)} for finding in self.verdict.findings],
            "faults": list(self.done),
            "faults_that_could_not_be_made": list(self.failed),
            "processes_that_ended_by_themselves": [asdict(one) for one in self.exits],
            "refused": self.refused,
            "took": self.took,
        }


def run(options: Options, folder: Path, show: Show) -> Report:
    """Run the shop in `folder`; raises what its parts raise when it cannot be run at all."""
    world = World(folder, options.shape, options.seed)
    took: dict[str, float] = {}
    began = time.monotonic()
    show("starting a shop")
    with world.up():
        took["start"] = round(time.monotonic() - began, 1)
        try:
            report = _under_faults(world, options, took, show)
        finally:
            # What explains a finding, or why the run itself failed; the rest is cleared away.
            world.keep_logs(folder / "logs")
        show("clearing away")
    shutil.rmtree(folder / "state", ignore_errors=True)
    took["whole"] = round(time.monotonic() - began, 1)
    return report


def _under_faults(world: World, options: Options, took: dict[str, float], show: Show) -> Report:
    load = Load(world.api_port, world.api_key, world.customers, options.rate, options.seed)
    strikes = Strikes(world)
    foreign = _foreign(world)
    with _timed(took, "first order"), load.flowing():
        show("waiting for the first orders")
        _until(lambda: len(load.acks) > 20, READY_SECONDS, "the first orders")
        took["chaos"] = options.seconds
        _strike(plan(options.seed, options.seconds, options.shape.lease), options.seconds, strikes, load, show)
    show("mending what is broken")
    with _timed(took, "mend"):
        strikes.wait()
        world.heal()
    with _timed(took, "drain"):
        drained = _drained(world, show)
    show("stopping")
    with _timed(took, "stop"):
        stuck = world.roles.stop_all()
    show("looking for anything lost, doubled, early or altered")
    with _timed(took, "check"):
        facts = gather(world, load, foreign, drained=drained)
        (world.folder / "facts.pickle").write_bytes(pickle.dumps(facts))
        verdict = check(facts)
    more = [*_processes(world.roles.exits, world.faults), *_stuck(stuck)]
    verdict = Verdict(verdict.lines, [*verdict.findings, *more], verdict.doubled_in_topic)
    return Report(
        options,
        verdict,
        sorted(strikes.done),
        strikes.failed,
        world.roles.exits,
        load.refused,
        len(load.acks),
        len(facts.published()),
        drained,
        took,
    )


def _strike(planned: Sequence[Planned], seconds: float, strikes: Strikes, load: Load, show: Show) -> None:
    began = time.monotonic()
    waiting = list(planned)
    last = ""
    while (now := time.monotonic() - began) < seconds:
        while waiting and waiting[0].at <= now:
            last = waiting[0].strike.value
            strikes.begin(waiting.pop(0))
        show(f"{now:5.0f} of {seconds:.0f} s, {len(load.acks)} promises; {last}")
        time.sleep(0.1)


def _drained(world: World, show: Show) -> bool:
    """Wait until nothing is left to do; return whether that came in time."""
    cluster, tables = Cluster(world.stack.kafka.bootstrap_servers), Tables(world.dsn)
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        lags = {group: cluster.lag(world.group_id(group), world.subscribed(group)) for group in GROUPS}
        unpublished = tables.unpublished()
        show(f"working off what is left: {lags}, {unpublished} not published")
        if unpublished == 0 and all(lag == 0 for lag in lags.values()):
            return True
        time.sleep(0.5)
    return False


def _foreign(world: World) -> frozenset[Place]:
    """Put records on the source topic that hold no event of ours; every group must find them dead."""
    found: set[Place] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            found.add(Place(message.topic() or "", message.partition() or 0, message.offset() or 0))

    producer = Producer({"bootstrap.servers": world.stack.kafka.bootstrap_servers, "acks": "all"})
    headers: list[tuple[str, str | bytes | None]] = [("from", b"somewhere else")]
    for number, value in enumerate(GARBAGE):
        partition = number % world.shape.partitions
        topic = world.settings.kafka.source_topic
        producer.produce(topic, value, b"foreign", partition, on_delivery=delivered, headers=headers)
    _until(lambda: producer.poll(0.1) is not None and len(found) == len(GARBAGE), READY_SECONDS, "the broker")
    return frozenset(found)


def _processes(exits: Sequence[Exit], faults: Sequence[Fault]) -> Iterator[Finding]:
    """A process may end by itself when it could not start for what was down; and the trial's kill themselves."""
    for one in exits:
        killed_itself = one.code == -signal.SIGKILL and one.name.startswith("trial")
        down = any(
            fault.role in ("kafka", "redis", "postgres", "mail")
            and fault.began <= one.at
            and fault.ended >= one.at - one.lived - AFTERMATH_SECONDS
            for fault in faults
        )
        last = one.said.splitlines()[-1] if one.said else ""
        could_not_start = one.code in (1, 78) and last.startswith("orderflow: ")
        if not killed_itself and not (could_not_start and down):
            yield Finding("processes stay", "", "", f"{one.name} ended with {one.code} after {one.lived:.1f} s: {last}")


def _stuck(names: Sequence[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding("a stop ends", "", "", f"{name} had to be killed")


def _until(true: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


@contextmanager
def _timed(took: dict[str, float], what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        took[what] = round(time.monotonic() - began, 1)


def main() -> int:
    """Run; return the exit code."""
    chosen = _options()
    console = Console(stderr=chosen.json)
    folder = Path(tempfile.mkdtemp(prefix=f"orderflow-chaos-{chosen.seed}-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tiers = tuple(int(seconds) for seconds in chosen.tiers.split(","))
    options = Options(chosen.seed, chosen.seconds, chosen.rate, Shape(tiers=tiers, workers=chosen.workers))
    try:
        with _progress(console, options) as show:
            report = run(options, folder, show)
    except KeyboardInterrupt:
        console.print("interrupted; everything was stopped and cleared away", style="yellow")
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    path = folder / "report.json"
    path.write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
    if chosen.json:
        sys.stdout.write(path.read_text(encoding="utf-8"))
    tell(report, console)
    if report.clean and not chosen.keep:
        for left in (folder / "logs", folder / "facts.pickle"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    console.print(f"report: {path}", soft_wrap=True)
    return 0 if report.clean else 1


def tell(report: Report, console: Console) -> None:
    """Print the books, the findings, and how to see them again."""
    table = Table("group", "all", "applied", "stale", "skipped", "dead", "pending", "lost", "doubled")
    for line in report.verdict.lines:
        table.add_row(line.group, *(str(number) for name, number in asdict(line).items() if name != "group"))
    console.print(table)
    seed, seconds = report.options.seed, report.options.seconds
    console.print(
        f"{len(report.done)} faults in {seconds:.0f} s (seed {seed}); {report.acks} promises, {report.events} events, "
        f"{report.verdict.doubled_in_topic} twice in the topic; {report.took['drain']:.0f} s until nothing was left",
        highlight=False,
    )
    for failed in report.failed:
        console.print(f"a fault could not be made: {failed}", style="red", markup=False)
    shown = Counter[str]()
    for finding in report.verdict.findings:
        shown[finding.rule] += 1
        if shown[finding.rule] > SHOWN_PER_RULE:
            continue
        console.print(str(finding), style="red", markup=False, highlight=False, soft_wrap=True)
        for line_of_story in finding.story:
            console.print(f"    {line_of_story}", markup=False, highlight=False, soft_wrap=True)
    if report.clean:
        console.print("nothing lost, nothing doubled but in a window, nothing early, nothing altered", style="green")
    else:
        console.print(f"{len(report.verdict.findings)} findings; again: make chaos SECONDS={seconds:.0f} SEED={seed}")


@contextmanager
def _progress(console: Console, options: Options) -> Iterator[Show]:
    if not console.is_terminal:
        yield _Lines().show
        return
    columns = (BarColumn(20), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=options.seconds)

        def show(text: str) -> None:
            first, _, _ = text.strip().partition(" ")
            bar.update(task, description=text, completed=float(first) if first.isdigit() else None)

        yield show


class _Lines:
    """A line for each part of the run, for a log; what only counts on is left out."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, text: str) -> None:
        part, _, _ = text.partition(":")
        if part != self._last and not part.strip()[:1].isdigit():
            self._last = part
            sys.stderr.write(f"{part} ...\n")
            sys.stderr.flush()


def _options() -> argparse.Namespace:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--seconds", type=float, default=120.0, help="how long faults strike")
    asked.add_argument(
        "--seed", type=int, default=secrets.randbelow(10_000), help="decides which fault strikes when; random"
    )
    asked.add_argument("--rate", type=float, default=15.0, help="orders a second")
    asked.add_argument("--workers", type=int, default=2, help="workers of each group")
    asked.add_argument("--tiers", default="1,2,4", help="delays of the retry topics, in seconds")
    asked.add_argument("--keep", action="store_true", help="keep logs and facts of a clean run too")
    asked.add_argument("--json", action="store_true", help="print the report as JSON")
    return asked.parse_args()


if __name__ == "__main__":
    sys.exit(main())
