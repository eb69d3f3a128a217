"""The one table of checks."""

from collections.abc import Callable
from dataclasses import dataclass

from consumers.runtime import loading
from orderflow.core import sources
from orderflow.core.settings import Settings
from orderflow.ops.doctor import kafka, machine, services
from orderflow.ops.doctor.finding import Finding, failed, ok
from schemas import evolution
from schemas.catalog import Catalog

Look = Callable[[Settings], Finding | list[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """One look. It is skipped unless what it `needs` (another check's name) is well.

    `look` may raise `OrderflowError`: its sentence is the finding then.
    """

    name: str
    look: Look
    needs: str | None = None


def _settings(settings: Settings) -> Finding:
    origin = sources.sources()
    known = set(sources.known())
    told = [source for name, source in origin.items() if name in known]
    kinds = {kind: sum(source == kind for source in told) for kind in sorted(set(told))}
    counted = ", ".join(f"{count} from {kind}" for kind, count in kinds.items()) or "all by default"
    return ok(f"{counted}; groups {', '.join(settings.groups)}")


def _schemas(_settings: Settings) -> Finding:
    catalog = Catalog.load()
    wrong = evolution.check(catalog)
    if wrong:
        return failed(f"{len(wrong)} problems, the first: {wrong[0]}", "`orderflow schemas check` lists them")
    return ok(f"{len(catalog.entries)} schemas are as their lock says")


def _groups(settings: Settings) -> Finding:
    return ok(f"{len(loading.load_groups(settings))} groups can be loaded")


def _names(settings: Settings) -> list[str]:
    return loading.group_names(settings)


CHECKS: tuple[Check, ...] = (
    Check("settings", _settings),
    Check("python", lambda _: machine.python()),
    Check("libraries", lambda _: machine.libraries()),
    Check("packages", lambda _: machine.packages()),
    Check("schemas", _schemas),
    Check("groups", _groups),
    Check("disk", machine.disk),
    Check("api port", machine.api_port),
    Check("metrics ports", machine.metrics_ports),
    Check("postgresql", services.postgres),
    Check("tables", services.migrations, "postgresql"),
    Check("roles", services.roles, "tables"),
    Check("api keys", services.api_keys, "roles"),
    Check("redis", services.redis_server),
    Check("redis eviction", services.redis_policy, "redis"),
    Check("redis persistence", services.redis_persistence, "redis"),
    Check("redis memory", services.redis_memory, "redis"),
    Check("redis clock", services.redis_clock, "redis"),
    Check("kafka", kafka.brokers),
    Check("broker settings", kafka.broker_settings, "kafka"),
    Check("group protocol", kafka.group_protocol, "kafka"),
    Check("lease", kafka.lease, "kafka"),
    Check("broker clock", kafka.clock_of_the_broker, "kafka"),
    Check("topics", lambda settings: kafka.our_topics(settings, _names(settings)), "kafka"),
    Check("positions", lambda settings: kafka.positions(settings, _names(settings)), "topics"),
    Check("mail server", services.smtp),
)
