"""A worker, or its interpreter, is frozen for longer than its lease, and wakes up as a zombie: inventory still once."""

import os
import secrets
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psycopg
import pytest
import redis

from consumers.inventory import stock
from consumers.inventory.group import group as inventory
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_created, tuned
from tests.faults.worker_lives import Doom, Life, Step, Stock, notes

Start = Callable[..., Popen[bytes]]
QUICK = {
    "ORDERFLOW_WORKER__LEASE_SECONDS": "2",
    "ORDERFLOW_WORKER__COMMIT_SECONDS": "0.2",
    # Also how long a frozen client may keep its locks in PostgreSQL.
    "ORDERFLOW_WORKER__DEADLINE_SECONDS": "5",
}
SKUS = ("TEA-100", "MUG-BLUE")


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_zombie_has_no_second_effect_and_sets_no_offset_back(
    shop_tables: Settings, start_role: Start, tmp_path: Path
) -> None:
    settings = tuned(shop_tables, lease_seconds=2.0, commit_seconds=0.2, deadline_seconds=5.0)
    orders = [order_created({SKUS[n % 2]: 1 + n % 3}) for n in range(900)]
    wanted: Counter[str] = Counter()
    for order in orders:
        wanted.update({line.sku: line.quantity for line in order.lines})
    with (
        psycopg.connect(settings.database.dsn.get_secret_value(), autocommit=True) as database,
        GroupHarness(inventory, settings, workers=0) as harness,
    ):
        stock.load(database, dict.fromkeys(SKUS, 1_000_000))
        zombie = start_role("worker", "inventory", **QUICK)
        harness.publish(*orders[:100])
        harness.wait_until(lambda: sum(harness.committed().values()) > 0, "the worker to work", 90)
        harness.publish(*orders[100:600])
        harness.wait_until(lambda: sum(harness.committed().values()) > 100, "the worker to be in the middle", 90)
        zombie.send_signal(signal.SIGSTOP)
        heir = harness.start_worker()
        harness.wait_drained(120)
        before = harness.committed()
        zombie.send_signal(signal.SIGCONT)
        harness.publish(*orders[600:])
        until = clock.monotonic() + 5
        while clock.monotonic() < until:  # the zombie finds out that it is one
            now = harness.committed()
            assert all(now[partition] >= offset for partition, offset in before.items())
            before = now
        harness.wait_drained(120)
        assert zombie.poll() is None, (tmp_path / "worker.log").read_text()
        assert heir.alive
        assert harness.dead_letters() == []
        reserved: dict[str, int] = dict(database.execute("SELECT sku, reserved FROM inventory.stock").fetchall())
        assert reserved == dict(wanted)
        (rows,) = database.execute("SELECT count(*) FROM inventory.inbox").fetchone() or (0,)
        assert rows == len(orders)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.CLAIMED, id="before the effect", marks=pytest.mark.long(whole=True)),
        pytest.param(Step.HANDLED, id="after the effect"),
    ],
)
def test_a_c_call_that_holds_the_interpreter_loses_the_claim_and_cannot_complete_it(
    shop_tables: Settings, tmp_path: Path, step: Step
) -> None:
    one = shop_tables.model_copy(update={"kafka": shop_tables.kafka.model_copy(update={"partitions": 1})})
    # Out of the group after 4 s without a poll; the client's own threads would stay in it for ever.
    settings = tuned(
        one, lease_seconds=2.0, commit_seconds=0.2, deadline_seconds=1.5, max_poll_seconds=4.0, retry_seconds=(1,)
    )
    order, before, late = (order_created({SKUS[0]: 1}) for _ in range(3))
    event_id = str(order.event_id)
    journal, gate = tmp_path / "journal.jsonl", tmp_path / "gate"
    os.mkfifo(gate)
    group = Stock(f"k{secrets.token_hex(4)}", journal)
    key = f"idem:{group.name}:0:{event_id}"
    with (
        psycopg.connect(settings.database.dsn.get_secret_value(), autocommit=True) as database,
        redis.Redis.from_url(settings.redis.url.get_secret_value()) as claims,
        GroupHarness(group.group(), settings, workers=0) as harness,
    ):
        stock.load(database, {SKUS[0]: 1_000_000})
        harness.publish(before)
        with Life(settings, group, Doom(step, event_id, gate=gate, journal=journal)).living(tmp_path) as zombie:
            harness.wait_drained(60)
            harness.publish(order)
            harness.wait_until(lambda: claims.hget(key, "st") == b"P", "the zombie to have the claim", 60)
            zombies_token = claims.hget(key, "tok")
            heir = harness.start_worker()
            harness.wait_drained(60)
            heirs_claim = claims.hgetall(key)
            assert heirs_claim[b"st"] == b"C"
            assert heirs_claim[b"tok"] != zombies_token
            with gate.open("wb") as pipe:
                pipe.write(b".")
            harness.wait_until(lambda: bool(notes(journal, "completed")), "the zombie to go on", 60)
            heir.stop()
            harness.publish(late)
            harness.wait_drained(60)  # by the zombie, which is a member again
            assert zombie.is_alive()
            assert [line["ok"] for line in notes(journal, "completed")] == [False]
            assert claims.hgetall(key) == heirs_claim
            assert harness.committed() == harness.ends() == {0: 3}
        assert harness.dead_letters() == []
        assert database.execute("SELECT reserved FROM inventory.stock").fetchall() == [(3,)]
        assert len(database.execute("SELECT FROM inventory.inbox").fetchall()) == 3
    runs = {line["pid"]: (line["maybe_done"], line["outcome"]) for line in notes(journal, "run", event=event_id)}
    was_first = step is Step.HANDLED
    assert runs == {
        os.getpid(): (True, "duplicate" if was_first else "processed"),
        zombie.pid: (False, "processed" if was_first else "duplicate"),
    }
    assert [line["pid"] for line in notes(journal, "run", event=str(late.event_id))] == [zombie.pid]
