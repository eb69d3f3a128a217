"""Looks at the brokers, the topics and the groups; writes nothing."""

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.doctor import judge
from orderflow.ops.doctor.finding import Finding, ok, skipped, warning
from orderflow.ops.provision import cluster, readiness, topics

_CLASSIC_SESSION_SECONDS = 10.0
_SESSION = "group.consumer.session.timeout.ms"
_PROTOCOLS = "group.coordinator.rebalance.protocols"


def brokers(settings: Settings) -> Finding:
    """Wait for the cluster's answer."""
    found = kafka.admin(settings.kafka).list_topics(timeout=cluster.ANSWER_SECONDS)
    return ok(f"{len(found.brokers)} brokers answer at {settings.kafka.bootstrap_servers}")


def broker_settings(settings: Settings) -> list[Finding]:
    """Look at how long offsets are kept, and whether mistyped topics are made."""
    told = topics.broker_warnings(kafka.admin(settings.kafka))
    return judge.problems(told, "offsets are kept for a year, and no topic is made by mistake")


def group_protocol(settings: Settings) -> Finding:
    """Look at whether the workers' group protocol is offered."""
    wanted = settings.kafka.group_protocol
    return judge.group_protocol(wanted, _broker_setting(settings, _PROTOCOLS, "classic").split(","))


def lease(settings: Settings) -> Finding:
    """Compare the lease of claims with the session of the groups."""
    protocol = settings.kafka.group_protocol
    if protocol == "classic":
        return judge.lease(settings.worker, _CLASSIC_SESSION_SECONDS, protocol)
    try:
        milliseconds = int(_broker_setting(settings, _SESSION, "45000"))
    except Misconfigured as denied:
        return skipped(str(denied))
    return judge.lease(settings.worker, milliseconds / 1000, protocol)


def _broker_setting(settings: Settings, name: str, default: str) -> str:
    configs = cluster.broker_configs(kafka.admin(settings.kafka))
    return next((config[name] for config in configs.values() if config.get(name)), default)


def clock_of_the_broker(_settings: Settings) -> Finding:
    """Say who measures it: the time of a broker is seen only on a record that it has just taken."""
    return skipped(
        "left to the workers, there is nothing to mend: only a record that was just written shows it, "
        "and no retry runs early whatever it says"
    )


def our_topics(settings: Settings, groups: list[str]) -> list[Finding]:
    """Compare topics and their settings with the contract."""
    found = topics.problems(settings, kafka.admin(settings.kafka), groups)
    return judge.problems(found, f"the topics of {settings.kafka.source_topic} and {len(groups)} groups are right")


def positions(settings: Settings, groups: list[str]) -> list[Finding]:
    """Look for partitions of the source on which a group has no position, or one outside the log."""
    found = [problem for group in groups for problem in readiness.position_problems(settings, group)]
    return judge.problems(found, "every group has a position on every partition")


def no_groups() -> Finding:
    """Say that there is nothing to look at."""
    return warning("ORDERFLOW_GROUPS is empty: nobody would read the events", "set it to email,inventory,audit")
