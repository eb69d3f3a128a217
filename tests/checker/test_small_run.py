"""A small run on the real parts: clean as it is, and what is planted in it for real is found."""

from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg import sql

from consumers.audit.group import group as audit
from consumers.inventory import stock
from consumers.inventory.group import group as inventory
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_cancelled, order_created, order_paid, tuned
from schemas.events import Event
from tests.checker import readers
from tests.checker.check import Verdict, check
from tests.checker.facts import CANCELLED, CREATED, PAID, Effect, Facts, GroupFacts
from tests.checker.frames import Frames

EVERYTHING = frozenset({CREATED, PAID, CANCELLED})
ORDERS = 12


@dataclass
class SmallRun:
    """Inventory and audit of one shop, and the checker's look at what they left."""

    settings: Settings
    groups: dict[str, GroupHarness] = field(default_factory=dict)

    @property
    def dsn(self) -> str:
        return self.settings.database.dsn.get_secret_value()

    def work(self, *events: Event) -> None:
        """Publish; let both groups work off everything, and end."""
        for number, group in enumerate((inventory, audit)):
            with GroupHarness(group, self.settings) as harness:
                self.groups[group.name] = harness
                if number == 0:
                    harness.publish(*events)
                harness.wait_drained()

    def facts(self) -> Facts:
        source = self.settings.kafka.source_topic
        cluster = readers.Cluster(self.settings.kafka.bootstrap_servers)
        tables = readers.Tables(self.dsn)
        topics = [name for one in self.groups.values() for name in (*one.topics.subscribed, one.topics.dlq)]
        records = cluster.records(topics)
        frames = Frames()
        rows, audited = tables.audit()

        def of(harness: GroupHarness, effects: list[Effect]) -> GroupFacts:
            return GroupFacts(
                name=harness.group.name,
                handles=EVERYTHING,
                tiers={topic: float(seconds) for topic, seconds in harness.topics.tiers.items()},
                replay=harness.topics.replay,
                dlq=harness.topics.dlq,
                once=True,
                effects=effects,
                commits=cluster.commits(harness.topics.group_id),
                committed=cluster.committed(harness.topics.group_id, harness.topics.subscribed),
                claims=readers.claims(self.settings.redis.url.get_secret_value(), harness.group.name),
                may_die=frozenset(),
            )

        return Facts(
            source=source,
            records=records,
            events={r.place: event for r in records[source] if (event := frames.read(r.value)) is not None},
            groups=[of(self.groups["inventory"], tables.inbox()), of(self.groups["audit"], audited)],
            reported=[record.place for record in records[source]],
            audit=rows,
            stock=tables.stock(),
        )

    def verdict(self) -> Verdict:
        return check(self.facts())


@pytest.fixture
def small_run(shop_tables: Settings) -> SmallRun:
    """One that worked off a dozen orders."""
    with psycopg.connect(shop_tables.database.dsn.get_secret_value(), autocommit=True) as connection:
        stock.load(connection, {"TEA-100": 1_000})
    run = SmallRun(tuned(shop_tables, lease_seconds=5.0, commit_seconds=0.1))
    orders = [order_created({"TEA-100": 2}) for _ in range(ORDERS)]
    later = [(order_paid, order_cancelled)[number % 2](order) for number, order in enumerate(orders)]
    run.work(*orders, *later)
    return run


def named(verdict: Verdict, rule: str) -> set[str]:
    return {finding.event_id for finding in verdict.findings if finding.rule == rule}


@pytest.mark.long
def test_what_is_planted_in_a_real_run_is_found(small_run: SmallRun) -> None:
    verdict = small_run.verdict()
    assert [str(finding) for finding in verdict.findings] == []
    assert [(line.group, line.all, line.applied, line.balances) for line in verdict.lines] == [
        ("inventory", 2 * ORDERS, 2 * ORDERS, True),
        ("audit", 2 * ORDERS, 2 * ORDERS, True),
    ]

    harness = small_run.groups["audit"]
    _a_row_twice(small_run)
    _stock_twice(small_run)
    missed = order_created()
    harness.publish(missed)
    harness.start_at(harness.ends())
    verdict = small_run.verdict()
    assert str(missed.event_id) in named(verdict, "nothing lost")
    assert str(missed.event_id) in named(verdict, "effect before commit")
    assert len({event_id for event_id in named(verdict, "exactly once") if event_id}) == 2
    assert any("TEA-100" in finding.how for finding in verdict.findings)
    lost = next(finding for finding in verdict.findings if finding.rule == "nothing lost" and finding.group == "audit")
    assert any("published at" in line for line in lost.story)
    assert any("audit commits" in line for line in lost.story)
    assert not any(line.balances for line in verdict.lines if line.group == "audit")

    harness.start_at(dict.fromkeys(harness.ends(), 0))
    went_back = [finding for finding in small_run.verdict().findings if finding.rule == "offsets"]
    assert any("went back" in finding.how for finding in went_back)
    harness.start_at({partition: end + 5 for partition, end in harness.ends().items()})
    assert any("its end was" in finding.how for finding in small_run.verdict().findings)


def _a_row_twice(run: SmallRun) -> None:
    columns = (
        "event_id, event_type, order_id, order_version, occurred_at, topic, partition, record_offset, value_sha256"
    )
    with psycopg.connect(run.dsn) as connection:
        connection.execute(
            sql.SQL("INSERT INTO audit.rows (epoch, {c}) SELECT 1, {c} FROM audit.rows LIMIT 1").format(
                c=sql.SQL(columns)
            )
        )


def _stock_twice(run: SmallRun) -> None:
    with psycopg.connect(run.dsn) as connection:
        connection.execute(
            "UPDATE inventory.reservations SET quantity = 4"
            " WHERE order_id = (SELECT order_id FROM inventory.reservations LIMIT 1)"
        )
