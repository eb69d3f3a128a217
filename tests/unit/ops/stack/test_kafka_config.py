"""The broker's settings."""

from pathlib import Path

from orderflow.ops.stack.kafka_config import server_properties
from orderflow.ops.stack.layout import Layout, Options, Ports


def properties(layout: Layout, node_id: int = 1) -> dict[str, str]:
    return dict(line.split("=", 1) for line in server_properties(layout, node_id, Path("data")).splitlines())


def test_it_listens_on_loopback_alone() -> None:
    found = properties(Layout(Ports.fixed()))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_topics_are_never_made_by_asking_for_them() -> None:
    assert properties(Layout(Ports.fixed()))["auto.create.topics.enable"] == "false"


def test_quick_groups_are_for_those_who_ask() -> None:
    name = "group.consumer.heartbeat.interval.ms"
    assert name not in properties(Layout(Ports.fixed()))
    assert properties(Layout(Ports.fixed(), Options(quick_groups=True)))[name] == "500"


def test_three_brokers_replicate_everything_and_survive_one() -> None:
    layout = Layout(Ports.fixed(brokers=3), Options(brokers=3))
    found = properties(layout, node_id=2)
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097"
    assert found["listeners"].startswith("PLAINTEXT://127.0.0.1:9093,")
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert found[f"{name}.replication.factor"] == "3"
    assert found["min.insync.replicas"] == found["transaction.state.log.min.isr"] == "2"


def test_one_broker_asks_for_no_replicas() -> None:
    found = properties(Layout(Ports.fixed()))
    assert found["default.replication.factor"] == found["min.insync.replicas"] == "1"
