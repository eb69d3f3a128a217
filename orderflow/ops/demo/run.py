"""The run: a whole shop on free ports, its orders, its books; then everything is cleared away."""

import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumers import GROUPS
from orderflow.core import clock, database, interrupt
from orderflow.core.topics import GroupTopics
from orderflow.ops.demo import accounting, collect, odd, plan
from orderflow.ops.demo.accounting import Books
from orderflow.ops.demo.client import OrderClient
from orderflow.ops.demo.display import Display
from orderflow.ops.demo.flow import let_flow
from orderflow.ops.demo.odd import Fate
from orderflow.ops.demo.topics import TopicReader
from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.shop import LocalShop
from orderflow.ops.provision.provision import provision
from orderflow.ops.samples import shop as samples
from orderflow.ops.stack.process import PartFailed
from orderflow.ops.stack.stack import LocalStack
from producers import auth

# Half of the default: with 19 topics, partitions are what the broker's start-up work grows with.
PARTITIONS = 6
_OWNER = "demo"


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo found; `seconds` without the cleaning up, `logs` is the folder of the kept logs."""

    orders: int
    books: Books
    fates: Sequence[Fate]
    seconds: float
    logs: Path | None

    @property
    def right(self) -> bool:
        """Whether the books balance and each odd one ended as it should."""
        return self.books.balance and all(fate.right for fate in self.fates)


def run(display: Display, *, keep: bool = False) -> Result:
    """Run the demo and leave nothing behind but, with `keep`, the logs.

    Raises `PartFailed` with the end of its log when a part or a role dies, and what the parts raise.
    """
    began = clock.monotonic()
    with _folder(keep=keep) as folder:
        stack = LocalStack.temporary(folder / "state", progress=display)
        shop = LocalShop(stack, RolePorts.free(), {"ORDERFLOW_KAFKA__PARTITIONS": str(PARTITIONS)})
        try:
            display.begin("starting Kafka, Redis, PostgreSQL and a mail sink")
            with stack:
                display.end("Kafka, Redis, PostgreSQL and a mail sink run, on free ports")
                try:
                    result = _run(shop, display, began, folder / "logs" if keep else None)
                finally:
                    _undisturbed()
                    display.begin("clearing away")
                    shop.stop()
                    if keep:
                        shop.keep_logs(folder / "logs")
                    # What is thrown away needs no end in good order, which takes a broker seconds.
                    stack.kafka.kill()
        except PartFailed as error:
            where = f"all logs are in {folder / 'logs'}" if keep else "`orderflow demo --keep` keeps all logs"
            raise PartFailed(f"{error}\n{where}") from error
        finally:
            _undisturbed()
    display.end("everything was stopped and cleared away")
    return result


def _run(shop: LocalShop, display: Display, began: float, logs: Path | None) -> Result:
    settings = shop.settings
    display.begin("making tables and topics")
    made = provision(settings)
    seeded = samples.seed(settings)
    with database.connect(settings.database, "api") as connection:
        key = auth.new_key(connection, _OWNER)
    display.end(
        f"{len(made.topics.created)} topics made, {seeded.articles} articles and {seeded.customers} customers loaded"
    )

    display.begin("starting API, relay and workers")
    shop.start()
    display.end(f"API, relay and {len(GROUPS)} workers run, a process each")

    groups = [GroupTopics(settings.kafka.source_topic, name, settings.worker.retry_seconds) for name in GROUPS]
    addresses = samples.addresses()
    with TopicReader(settings, groups) as reader, OrderClient(shop.api_url, key) as client:
        flowed = let_flow(shop, client, reader, samples.orders(), display)
        due = plan.due([(order.order_id, order.sample) for order in flowed.placed], addresses)
        with database.connect(settings.database) as connection:
            facts = collect.facts(connection, shop.stack.mail, reader, flowed.positions, flowed.placed)
            traces = collect.traces(connection, shop.stack.mail, reader, facts, dict(due.mails))
            fates = odd.fates(flowed.placed, facts, traces)
    return Result(len(flowed.placed), accounting.close(facts, due), fates, clock.monotonic() - began, logs)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """Yield a temporary folder; remove it afterwards, or with `keep` all of it but the logs."""
    folder = Path(tempfile.mkdtemp(prefix="orderflow-demo-"))
    # A terminated run cleans up as an interrupted one does.
    before = {number: signal.signal(number, interrupt.interrupted) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield folder
    finally:
        shutil.rmtree(folder / "state" if keep else folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _undisturbed() -> None:
    """Let no second Ctrl-C cut the cleaning up short."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
