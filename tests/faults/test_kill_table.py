"""A worker is killed (kill -9) right after one step of one event; another takes over. What comes out, for each step.

Each row is a shop of its own: a group, its topics, a worker process that dies at the step, and an heir. All rows run
at the same time, since most of their time is the broker's, until it takes a dead member's partitions away.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import psycopg
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql

from consumers.inventory import stock
from consumers.runtime.claims import Answer
from orderflow.core.settings import Settings, load
from orderflow.ops.provision import database as tables
from orderflow.ops.stack.redis import DATABASES
from orderflow.testing import Found, GroupHarness, WorkerThread, order_created, order_paid, tuned
from schemas import codec
from schemas import headers as names
from schemas.events import OrderCreated
from schemas.headers import event_headers
from tests.faults.worker_lives import Doom, Effects, Life, Step, Stock, notes
from tests.stacks.interface import Stack

Run = tuple[int, bool]  # attempt, maybe_done
FIRST, UNSURE = (1, False), (1, True)
PIECES = 3


@dataclass(frozen=True)
class Row:
    """One row of the table: where the worker dies, and what its group does with the event."""

    step: Step
    kind: type[Effects] | type[Stock]
    retried: bool = False
    rejected: bool = False
    redis_emptied: bool = False

    def __str__(self) -> str:
        words = [self.kind.__name__.lower(), self.step.name.lower()]
        words += ["retried"] * self.retried + ["rejected"] * self.rejected
        return "-".join([*words, *["redis emptied"] * self.redis_emptied]).replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """What is seen from outside when the heir has nothing more to do."""

    runs: list[Run]
    effects: list[Run]
    followers: list[str]  # events of the same key behind it, in the order of their effects
    expected_followers: list[str]
    reserved: int
    inbox: int
    copies: int
    letters: list[Found]
    state: bytes | None  # of the claim
    is_committed: bool


@dataclass
class Shops:
    """Makes the rows' shops: one database and one Redis database each for all that may share them."""

    stack: Stack
    folder: Path
    database: str
    redis_databases: list[int] = field(default_factory=list)
    provisioning: Lock = field(default_factory=Lock)
    prefix: str = field(default_factory=lambda: f"orders-{secrets.token_hex(4)}")

    def settings(self, name: str, redis_database: int) -> Settings:
        environ = self.stack.environment() | {
            "ORDERFLOW_DATABASE__DSN": self.database,
            "ORDERFLOW_REDIS__URL": self.stack.redis.url_of(redis_database),
            "ORDERFLOW_KAFKA__SOURCE_TOPIC": f"{self.prefix}-{name}",
            "ORDERFLOW_KAFKA__PARTITIONS": "1",
        }
        settings = load(environ, env_file=self.folder / "no-env-file")
        return tuned(settings, retry_seconds=(1,), commit_seconds=0.2, slots=4)

    def run(self, row: Row) -> Outcome:
        """Let the worker die, the heir take over, and look at what there is."""
        name = f"k{secrets.token_hex(4)}"
        journal = self.folder / f"{name}.jsonl"
        # Below the broker's session it is the session alone that an heir waits for; above it meets the dead's claim.
        lease_seconds = 10.0 if row.step is Step.CLAIMED else 4.0
        settings = tuned(self.settings(name, self.redis_databases[row.redis_emptied]), lease_seconds=lease_seconds)
        order = order_created({name.upper(): PIECES})
        event_id = str(order.event_id)
        followers = [order_paid(order), order_paid(order, order_version=3)]
        if row.kind is Stock:
            of: Effects | Stock = Stock(name, journal)
            with self.connect() as connection:
                stock.load(connection, {name.upper(): 100})
        else:
            of = Effects(
                name,
                journal,
                retried=frozenset([event_id]) if row.retried else frozenset(),
                rejected=event_id if row.rejected else "",
            )
        with ExitStack() as ends:
            # One by one: many new topics at once make the client wait 14 s for their leaders.
            with self.provisioning:
                harness = ends.enter_context(GroupHarness(of.group(), settings, workers=0))
            harness.publish(order)
            Life(settings, of, Doom(row.step, event_id)).end(self.folder)
            assert harness.committed()[0] == 0 or row.step is Step.COMMITTING
            if row.redis_emptied:
                with redis.Redis.from_url(settings.redis.url.get_secret_value()) as client:
                    client.flushdb()
            harness.publish(*followers)
            harness.start_worker()
            harness.wait_drained(90)
            return Outcome(
                runs=_runs(journal, "run", event_id),
                effects=_runs(journal, "effect", event_id),
                followers=[line["event"] for line in notes(journal, "effect") if line["event"] != event_id],
                expected_followers=[str(event.event_id) for event in followers],
                reserved=self.one("SELECT reserved FROM inventory.stock WHERE sku = %s", name.upper()),
                inbox=self.one("SELECT count(*) FROM inventory.inbox WHERE group_name = %s", name),
                copies=sum(len(harness.records(tier)) for tier in harness.topics.tiers),
                letters=harness.dead_letters(),
                state=self.state(settings, name, event_id),
                is_committed=harness.committed() == harness.ends(),
            )

    def delete_topics(self) -> None:
        with suppress(KafkaException, TimeoutError):  # tidiness only
            admin = AdminClient({"bootstrap.servers": self.stack.kafka.bootstrap_servers})
            ours = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(self.prefix)]
            for done in admin.delete_topics(ours).values() if ours else ():
                done.result(30)

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.database, autocommit=True)

    def one(self, query: str, *arguments: str) -> int:
        with self.connect() as connection:
            (number,) = connection.execute(query, arguments).fetchone() or (0,)
        return int(number)

    @staticmethod
    def state(settings: Settings, group: str, event_id: str) -> bytes | None:
        with redis.Redis.from_url(settings.redis.url.get_secret_value()) as client:
            state: bytes | None = client.hget(f"idem:{group}:0:{event_id}", "st")
        return state


def _runs(journal: Path, what: str, event_id: str) -> list[Run]:
    return [(line["attempt"], line["maybe_done"]) for line in notes(journal, what, event=event_id) if "attempt" in line]


STEPS_OF_A_SUCCESS = (Step.POLLED, Step.CLAIMED, Step.HANDLED, Step.COMPLETED, Step.COMMITTING)
IN_STOCK = [Row(step, Stock) for step in STEPS_OF_A_SUCCESS]
OUTSIDE = {
    Row(Step.POLLED, Effects): [FIRST],
    Row(Step.CLAIMED, Effects): [UNSURE],
    Row(Step.HANDLED, Effects): [FIRST, UNSURE],
    Row(Step.COMPLETED, Effects): [FIRST],
    Row(Step.COMMITTING, Effects): [FIRST],
}
RETRIED = [Row(step, Effects, retried=True) for step in (Step.COPIED, Step.RELEASED)]
REJECTED = [Row(step, Effects, rejected=True) for step in (Step.BURIED, Step.RELEASED)]
FORGOTTEN = [Row(step, kind, redis_emptied=True) for step in (Step.COMPLETED,) for kind in (Stock, Effects)]
Table = Callable[[Row], Outcome]

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def table(stack: Stack, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Run the rows that were asked for, all at once; return a function that gives the outcome of one."""
    asked = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    rows: set[Row] = {row for item in asked if (row := item.callspec.params.get("row"))}  # type: ignore[misc]
    name = f"test_{secrets.token_hex(6)}"
    database = sql.Identifier(name)
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as server, ExitStack() as ends:
        server.execute(sql.SQL("CREATE DATABASE {}").format(database))
        ends.callback(server.execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))
        shops = Shops(stack, tmp_path_factory.mktemp("lives"), stack.postgres.dsn_of(name))
        ends.callback(shops.delete_topics)
        shops.redis_databases += [1 + secrets.randbelow(DATABASES - 1) for _ in range(2)]
        for number in shops.redis_databases:
            client = ends.enter_context(redis.Redis.from_url(stack.redis.url_of(number)))
            client.flushdb()
            ends.callback(client.flushdb)
        tables.apply(shops.settings("tables", shops.redis_databases[0]))
        pool = ends.enter_context(ThreadPoolExecutor(len(rows)))
        running: dict[Row, Future[Outcome]] = {row: pool.submit(shops.run, row) for row in rows}
        yield lambda row: running[row].result()


def settled(outcome: Outcome) -> bool:
    """Whether nothing is pending, nothing is a dead letter, and what came behind it ran once and in order."""
    return outcome.is_committed and not outcome.letters and outcome.followers == outcome.expected_followers


@pytest.mark.parametrize("row", IN_STOCK, ids=str)
def test_in_postgresql_it_is_applied_once(table: Table, row: Row) -> None:
    outcome = table(row)
    assert outcome.is_committed
    assert outcome.letters == []
    assert outcome.state == b"C"
    assert outcome.reserved == PIECES
    assert outcome.inbox == 1 + len(outcome.expected_followers)


@pytest.mark.parametrize(("row", "effects"), OUTSIDE.items(), ids=map(str, OUTSIDE))
def test_outside_it_is_done_once_or_the_second_run_is_told(table: Table, row: Row, effects: list[Run]) -> None:
    outcome = table(row)
    assert settled(outcome)
    assert outcome.state == b"C"
    assert outcome.effects == outcome.runs == effects


@pytest.mark.parametrize("row", RETRIED, ids=str)
def test_a_confirmed_copy_and_its_source_have_one_effect(table: Table, row: Row) -> None:
    outcome = table(row)
    assert settled(outcome)
    assert [attempt for attempt, _ in outcome.effects] == [2]
    assert 1 <= outcome.copies <= (2 if row.step is Step.COPIED else 1)
    # Each attempt of its budget once, and one more for the crash.
    assert len(outcome.runs) <= 2 + (row.step is Step.COPIED)
    assert max(attempt for attempt, _ in outcome.runs) == 2


@pytest.mark.parametrize("row", REJECTED, ids=str)
def test_a_confirmed_dead_letter_and_its_source_are_one_death(table: Table, row: Row) -> None:
    outcome = table(row)
    assert outcome.is_committed
    assert outcome.effects == []
    assert {letter.header(names.DLQ_DISPOSITION) for letter in outcome.letters} == {"PERMANENT"}
    assert len({letter.header(names.DLQ_ID) for letter in outcome.letters}) == 1
    most = 2 if row.step is Step.BURIED else 1
    assert len(outcome.runs) <= most
    assert 1 <= len(outcome.letters) <= most


@pytest.mark.parametrize("row", FORGOTTEN, ids=str)
def test_a_mark_that_went_with_redis_costs_a_second_run_and_no_second_entry_in_postgresql(
    table: Table, row: Row
) -> None:
    outcome = table(row)
    assert outcome.is_committed
    assert outcome.letters == []
    if row.kind is Stock:
        assert (outcome.reserved, outcome.inbox) == (PIECES, 1 + len(outcome.expected_followers))
    else:
        assert outcome.effects == [FIRST, FIRST]  # nobody can know: the documented window


@pytest.mark.parametrize("is_killed", [True, False], ids=["and is killed", "and comes back"])
def test_a_started_handler_keeps_its_event_when_its_partition_goes(
    settings: Settings, tmp_path: Path, *, is_killed: bool
) -> None:
    two = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 2})})
    quick = tuned(two, retry_seconds=(1,), lease_seconds=4.0, commit_seconds=0.2, revoke_budget_seconds=0.5)
    events = [order_created() for _ in range(2)]
    started = [str(event.event_id) for event in events]
    journal, gate = tmp_path / "journal.jsonl", tmp_path / "gate"
    heirs = Effects(f"k{secrets.token_hex(4)}", journal)
    owners = replace(heirs, held=frozenset(started), gate=gate)

    def runs(pid: int, **facts: object) -> list[str]:
        return [line["event"] for line in notes(journal, "run", pid=pid, **facts)]

    with GroupHarness(heirs.group(), quick, workers=0) as harness:

        def publish_to_each(*chosen: OrderCreated) -> None:
            for partition, event in enumerate(chosen):
                record = str(event.order_id).encode(), codec.encode(event), event_headers(event)
                harness.publish_raw([record], partition=partition)

        publish_to_each(*events)
        with Life(quick, owners).living(tmp_path) as owner:
            assert owner.pid is not None
            pid = owner.pid
            harness.wait_until(lambda: sorted(runs(pid)) == sorted(started), "both handlers to be started", 60)
            heir = harness.start_worker()
            # Its claim of the started event is refused: the partition is its own by now, the event is not.
            harness.wait_until(lambda: answers(heir, heirs.name, Answer.BUSY) > 1, "the heir to meet the claim", 60)
            publish_to_each(order_created(), order_created())
            harness.wait_until(lambda: bool(runs(os.getpid())), "the heir to handle others", 60)
            assert not set(runs(os.getpid())) & set(started)
            if is_killed:
                owner.kill()
            else:
                gate.touch()
            harness.wait_drained(90)
            assert harness.dead_letters() == []
    assert [len(notes(journal, "effect", event=event)) for event in started] == [1, 1]
    if is_killed:
        assert sorted(runs(os.getpid(), maybe_done=True)) == sorted(started)
    else:
        assert not set(runs(os.getpid())) & set(started)


def answers(worker: WorkerThread, group: str, answer: Answer) -> float:
    labels = {"group": group, "result": answer.value}
    return worker.metrics.registry.get_sample_value("orderflow_claims_total", labels) or 0.0
