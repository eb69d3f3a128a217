"""A worker is frozen for longer than its lease and its session, and wakes up as a zombie: inventory still once."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psycopg
import pytest

from consumers.inventory import stock
from consumers.inventory.group import group as inventory
from orderflow.core import clock
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_created, tuned

Start = Callable[..., Popen[bytes]]
QUICK = {
    "ORDERFLOW_WORKER__LEASE_SECONDS": "2",
    "ORDERFLOW_WORKER__COMMIT_SECONDS": "0.2",
    # Also how long a frozen client may keep its locks in PostgreSQL.
    "ORDERFLOW_WORKER__DEADLINE_SECONDS": "5",
}
SKUS = ("TEA-100", "MUG-BLUE")


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
