"""Redis is emptied between effect and commit: stock is reserved once, recorded once, and a noted mail goes out once."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import redis

from consumers.inventory import stock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_created, tuned
from tests.faults.worker_lives import Doom, Life, Shop, Step
from tests.stacks.interface import Stack

GROUPS = ("email", "inventory", "audit")


@pytest.fixture
def one_at_a_time(shop_tables: Settings) -> Settings:
    """One partition and one slot: when the last event is done, nothing runs beside it."""
    one = shop_tables.model_copy(update={"kafka": shop_tables.kafka.model_copy(update={"partitions": 1})})
    return tuned(one, slots=1, lease_seconds=4.0, commit_seconds=60.0, retry_seconds=(1,))


@pytest.mark.long
@pytest.mark.timeout(240)
def test_stock_audit_and_noted_mails_are_there_once(one_at_a_time: Settings, stack: Stack, tmp_path: Path) -> None:
    settings, customer = one_at_a_time, uuid4()
    orders = [order_created({"TEA-100": 2}, customer_id=customer) for _ in range(5)]
    last = str(orders[-1].event_id)
    with (
        psycopg.connect(settings.database.dsn.get_secret_value(), autocommit=True) as database,
        redis.Redis.from_url(settings.redis.url.get_secret_value()) as claims,
        ExitStack() as ends,
    ):
        stock.load(database, {"TEA-100": 1_000})
        database.execute(
            "INSERT INTO api.customers (customer_id, email, name, locale) VALUES (%s, %s, 'Kim Lee', 'en')",
            (customer, f"{customer}@shop.example"),
        )
        shops = [Shop(name) for name in GROUPS]
        harnesses = [ends.enter_context(GroupHarness(shop.group(), settings, workers=0)) for shop in shops]
        harnesses[0].publish(*orders)
        doomed = [
            ends.enter_context(Life(settings, shop, Doom(Step.COMPLETED, last)).living(tmp_path)) for shop in shops
        ]
        for process in doomed:
            process.join(90)
            assert process.exitcode == -9
        assert all(harness.committed()[0] == 0 for harness in harnesses)
        assert len(claims.keys("idem:*")) == len(GROUPS) * len(orders)
        claims.flushdb()
        for harness in harnesses:
            harness.start_worker(commit_seconds=0.2)
        for harness in harnesses:
            harness.wait_drained(90)
            assert harness.dead_letters() == []
            assert all(harness.records(tier) == [] for tier in harness.topics.tiers)
        again = [harness.workers[0].metrics.registry for harness in harnesses]

        assert database.execute("SELECT reserved FROM inventory.stock").fetchall() == [(2 * len(orders),)]
        events = sorted((order.event_id,) for order in orders)
        assert sorted(database.execute("SELECT event_id FROM inventory.inbox").fetchall()) == events
        assert sorted(database.execute("SELECT event_id FROM audit.rows").fetchall()) == events
        noted: dict[str, str] = dict(database.execute("SELECT message_id, state FROM email.deliveries").fetchall())
    assert set(noted.values()) == {"sent"}
    assert len(noted) == len(orders)
    assert Counter(mail.message_id for mail in stack.mail.messages() if mail.message_id in noted) == dict.fromkeys(
        noted, 1
    )
    # All were handled again, by workers to whom Redis told nothing.
    for name, registry in zip(GROUPS, again, strict=True):
        owned = registry.get_sample_value("orderflow_claims_total", {"group": name, "result": "owned"})
        assert owned == len(orders)
