"""What other teams test their handlers with: events, groups, and a harness on the real parts."""

from orderflow.testing.events import new_id, order_cancelled, order_created, order_paid
from orderflow.testing.groups import make_group
from orderflow.testing.harness import Found, GroupHarness, WorkerThread, tuned

__all__ = [
    "Found",
    "GroupHarness",
    "WorkerThread",
    "make_group",
    "new_id",
    "order_cancelled",
    "order_created",
    "order_paid",
    "tuned",
]
