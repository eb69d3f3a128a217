"""What may go of the inventory's tables."""

from collections.abc import Sequence
from datetime import timedelta

from orderflow.core.settings import Settings
from orderflow.core.sweep import Sweep


def sweeps(settings: Settings) -> Sequence[Sweep]:
    """Return it: old entries of the inbox, those of former idempotency epochs among them.

    An event may come again at any time: a dead letter is replayed after years, a group is set back to the first
    record. Stock does not rest on the inbox then: the order's own row is never deleted, and by its state a second
    creation, payment or cancellation changes nothing (`orders.decide`). An entry only tells a repetition (duplicate)
    from an event that came too late (stale), and spares a look at the order. See docs/adr/0006.
    """
    return (
        Sweep(
            "inventory.inbox",
            "group_name, epoch, event_id",
            "applied_at < %(before)s",
            timedelta(days=settings.janitor.inbox_days),
        ),
    )
