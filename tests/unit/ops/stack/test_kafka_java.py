"""The command line of a broker."""

from pathlib import Path

import pytest

from orderflow.ops.stack import kafka_java
from orderflow.ops.stack.kafka_java import BROKER_CLASS, java
from orderflow.ops.stack.process import Command


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_java, "ensure_jars", lambda: [Path("/jars/one.jar"), Path("/jars/two.jar")])


def broker(heap_mb: int = 256) -> Command:
    return java(BROKER_CLASS, ["server.properties"], Path("/state"), heap_mb)


def test_a_benchmark_gets_both_compilers() -> None:
    assert "-XX:TieredStopAtLevel=1" in broker().argv
    assert "-XX:TieredStopAtLevel=1" not in broker(heap_mb=1024).argv


def test_the_class_path_keeps_its_order_and_no_secret_reaches_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERFLOW_SMTP__PASSWORD", "hunter2")
    env = broker().env
    assert env["CLASSPATH"] == "/jars/one.jar:/jars/two.jar"
    assert not any(name.startswith("ORDERFLOW_") for name in env)
