"""The files that a broker of the local stack reads: pure text."""

from pathlib import Path

from orderflow.ops.stack.layout import HOST, Layout

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""

# Without these a KIP-848 rebalance takes 5.2 s, with them 1.2 s (measured).
_QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.min.session.timeout.ms": 1_000,
}

# A killed broker that comes back is refused until its old session ends: with the default of 9 s it is
# away for 13.6 s, and in a cluster producers stall for 11 s until another takes over (measured).
_QUICK_RETURN = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
}
_QUICK_FAILOVER = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3_000,
    "controller.quorum.fetch.timeout.ms": 1_500,
    "controller.quorum.election.timeout.ms": 500,
}


def server_properties(layout: Layout, node_id: int, data: Path) -> str:
    """Return `server.properties` of one node (ids from 1); with three brokers all topics get three replicas."""
    ports, options = layout.ports, layout.options
    port, controller = ports.kafka[node_id - 1], ports.controllers[node_id - 1]
    replicas = min(options.brokers, 3)
    in_sync = max(1, replicas - 1)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{p}" for n, p in enumerate(ports.controllers, start=1)),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "log.cleaner.dedupe.buffer.size": 10_485_760,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        # An emptied group keeps its offsets for a year: without them it would look like a new one.
        "offsets.retention.minutes": 525_600,
    }
    if options.quick_groups:
        settings |= _QUICK_GROUPS
    settings |= _QUICK_RETURN if options.brokers == 1 else _QUICK_FAILOVER
    return "".join(f"{name}={value}\n" for name, value in settings.items())
