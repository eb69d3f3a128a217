"""What may go of the order API's tables."""

from collections.abc import Sequence
from datetime import timedelta

from orderflow.core.settings import Settings
from orderflow.core.sweep import Sweep

# A request that began while its key still counted must find it, however long it waits: longer than any time limit
# of a statement or a request.
_REQUEST = timedelta(hours=1)


def sweeps(settings: Settings) -> Sequence[Sweep]:
    """Return them: events that Kafka has had for a while, and Idempotency-Keys that count no more.

    An outbox row without `published_at` waits for the relay or stands in quarantine: it never goes (a trigger of the
    database sees to it, too). A published one is a copy of what the topic keeps for ever; it is kept some days for
    people who look into an incident.
    """
    janitor, api = settings.janitor, settings.api
    return (
        Sweep("api.outbox", "id", "published_at < %(before)s", timedelta(days=janitor.outbox_days)),
        Sweep(
            "api.idempotency_keys",
            "created_at, owner, key",
            "created_at < %(before)s",
            timedelta(hours=api.idempotency_hours) + _REQUEST,
        ),
    )
