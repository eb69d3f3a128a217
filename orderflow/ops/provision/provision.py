"""`orderflow provision`: everything that must be there before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consumers.runtime import loading
from orderflow.core.settings import Settings
from orderflow.ops.provision import database, positions, topics


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What a run did: migrations applied, topics made and mended, groups that start at the earliest record."""

    migrations: Sequence[str]
    topics: topics.TopicChanges
    groups: Sequence[str]


def provision(settings: Settings) -> Provisioned:
    """Make tables and topics; if this run made the source topic, let the known groups start at its beginning.

    On any other cluster no position is touched: a group that lost its offsets looks exactly like a
    new one, and would do all of history again. Raises what its parts raise.
    """
    groups = loading.group_names(settings)
    migrations = database.apply(settings)
    changes = topics.apply(settings, groups)
    fresh = groups if settings.kafka.source_topic in changes.created else []
    written: Mapping[str, Mapping[int, int]] = {group: positions.init(settings, group, "earliest") for group in fresh}
    return Provisioned(migrations, changes, tuple(written))
