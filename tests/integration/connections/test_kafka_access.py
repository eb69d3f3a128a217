"""The whole way of an order over TLS with a login, on a broker that allows no more than what is written here."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType
from pydantic import SecretStr

from orderflow.core import database
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import KafkaSettings, Settings
from orderflow.ops.provision import topics
from orderflow.ops.provision.provision import provision
from orderflow.ops.provision.trim import trim
from producers.bodies import Line, PlaceOrder
from producers.relay_process import require_topic
from producers.store import Caller, Store

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

T = TypeVar("T")
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
ROLE = [
    (TOPIC, AclOperation.DESCRIBE),
    (TOPIC, AclOperation.READ),
    (TOPIC, AclOperation.WRITE),
    (TOPIC, AclOperation.DESCRIBE_CONFIGS),
    (GROUP, AclOperation.READ),
    (GROUP, AclOperation.DESCRIBE),
]
PROVISION = [(TOPIC, AclOperation.CREATE), (TOPIC, AclOperation.ALTER_CONFIGS)]


@pytest.fixture
def shop_behind_guards(guarded_broker: Any, settings: Settings) -> Settings:
    """Settings of a shop on that broker: its user `shop` has no right yet."""
    reach = {"start_timeout_seconds": 60, "partitions": 2, "source_topic": settings.kafka.source_topic}
    return settings.model_copy(update={"groups": ("audit",), "kafka": guarded_broker.settings("SASL", **reach)})


def allow(broker: Any, prefix: str, rules: list[tuple[ResourceType, AclOperation]]) -> None:
    broker.allow("shop", *((kind, prefix, operation) for kind, operation in rules))


def until_allowed(act: Callable[[], T]) -> T:
    """Do it again until the broker has taken the rules that it was told a moment ago."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return act()
        except Misconfigured:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def as_environment(settings: Settings) -> dict[str, str]:
    kafka = {
        f"ORDERFLOW_KAFKA__{name.upper()}": value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in settings.kafka
        if value is not None
    }
    return kafka | {
        "PATH": os.environ["PATH"],
        "ORDERFLOW_GROUPS": "audit",
        "ORDERFLOW_DATABASE__DSN": settings.database.dsn.get_secret_value(),
        "ORDERFLOW_REDIS__URL": settings.redis.url.get_secret_value(),
    }


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


def test_an_order_reaches_a_group_over_tls_with_a_login_and_these_rights(
    guarded_broker: Any, shop_behind_guards: Settings, processes: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    shop = shop_behind_guards
    prefix = shop.kafka.source_topic
    allow(guarded_broker, prefix, [*ROLE, *PROVISION])
    assert until_allowed(lambda: provision(shop)).groups == ("audit",)

    body = PlaceOrder(
        customer_id=uuid4(), currency="GBP", lines=[Line(sku="TEA", quantity=1, unit_price=Decimal("1.50"))]
    )
    with database.pool(shop.database, "api", size=1) as pool:
        Store(pool, prefix).place(Caller("checkout"), body)
    for verb in (("relay",), ("worker", "audit")):
        with (tmp_path / f"{verb[0]}.log").open("wb") as log:
            command = [sys.executable, "-m", "orderflow", *verb]
            environ = as_environment(shop)
            processes.append(subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=log, stderr=log))

    with database.connect(shop.database, "audit", autocommit=True) as connection:
        deadline = time.monotonic() + 120
        while connection.execute("SELECT count(*) FROM audit.rows").fetchone() != (1,):
            logs = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
            assert time.monotonic() < deadline, logs
            assert all(process.poll() is None for process in processes), logs
            time.sleep(0.1)
    assert [found for found in topics.check(shop, ["audit"]) if found.severity == "error"] == []


def test_without_a_right_the_sentence_names_it(shop_behind_guards: Settings) -> None:
    shop = shop_behind_guards
    with pytest.raises(Misconfigured, match=r"not to the topic .*CREATE"):
        topics.apply(shop, ["audit"])
    with pytest.raises(Misconfigured, match="is hidden from us: give our user DESCRIBE and WRITE"):
        require_topic(shop)

    told = topics.check(shop, ["audit"])

    assert {found.what for found in told if found.severity == "error"} == {"is hidden from us, or does not exist"}
    assert any("do not show us their settings" in found.what for found in told)


def test_trim_and_check_need_these_rights_more(guarded_broker: Any, shop_behind_guards: Settings) -> None:
    shop, prefix = shop_behind_guards, shop_behind_guards.kafka.source_topic
    allow(guarded_broker, prefix, [*ROLE, *PROVISION])
    until_allowed(lambda: topics.apply(shop, ["audit"]))
    tier = next(iter(topics.group_topics(shop, "audit").tiers))
    producer = Producer({"bootstrap.servers": guarded_broker.address, "log_level": 0})
    for _ in range(3):
        producer.produce(tier, b"value", partition=0)
    assert producer.flush(30) == 0
    place = ConsumerGroupTopicPartitions(f"{prefix}.audit", [TopicPartition(tier, 0, 2)])
    (done,) = guarded_broker.admin.alter_consumer_group_offsets([place]).values()
    assert [told.error for told in done.result(30).topic_partitions] == [None]
    assert [x.state for x in trim(shop, ["audit"], dry_run=True)][:2] == ["trim", "no position"]

    with pytest.raises(Misconfigured, match=r"did not delete records .*`topics trim` DELETE"):
        trim(shop, ["audit"])
    allow(guarded_broker, prefix, [(TOPIC, AclOperation.DELETE)])
    until_allowed(lambda: trim(shop, ["audit"]))
    assert [share.start for share in trim(shop, ["audit"]) if share.topic == tier] == [2, 0]

    assert any("do not show us their settings" in found.what for found in topics.check(shop, ["audit"]))
    guarded_broker.allow("shop", (CLUSTER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS))
    deadline = time.monotonic() + 60
    while any("do not show us" in found.what for found in topics.check(shop, ["audit"])):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_command_with_a_wrong_password_says_so_in_one_line_and_ends_with_78(
    shop_behind_guards: Settings, tmp_path: Path, *, short: bool
) -> None:
    wrong = shop_behind_guards.model_copy(update={"kafka": _with_password(shop_behind_guards.kafka, "wrong")})
    verbs = [["relay"], ["worker", "audit"], ["topics", "check"], ["provision"], ["groups", "ls"]]
    for verb in verbs[:2] if short else verbs:
        command = [sys.executable, "-m", "orderflow", *verb]
        done = subprocess.run(
            command, cwd=tmp_path, env=as_environment(wrong), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 78, (verb, done.stderr)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("orderflow: Kafka at ")
        assert "refuses the password of user shop" in last
        assert "ORDERFLOW_KAFKA__SASL_PASSWORD" in last


def _with_password(kafka: KafkaSettings, password: str) -> KafkaSettings:
    return kafka.model_copy(update={"sasl_password": SecretStr(password)})
