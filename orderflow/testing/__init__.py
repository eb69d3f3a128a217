"""What other teams test their handlers with: events, groups, and a harness on the real parts."""

from orderflow.testing.groups import make_group
from orderflow.testing.harness import Found, GroupHarness, WorkerThread, tuned
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid

__all__ = [
    "Found",
    "GroupHarness",
    "WorkerThread",
    "delivery_of",
    "make_group",
    "order_cancelled",
    "order_created",
    "order_paid",
    "tuned",
]
