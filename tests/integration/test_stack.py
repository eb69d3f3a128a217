"""The local stack on the real parts: readiness, restarts, joining, deaths, and that nothing is left behind."""

import contextlib
import os
import signal
import smtplib
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from orderflow.core import clock
from orderflow.core.errors import Misconfigured, Refused
from orderflow.core.settings import Settings, load
from orderflow.ops.stack.layout import HOST, Layout, Options, Ports, free_ports
from orderflow.ops.stack.mail import MailSink
from orderflow.ops.stack.process import PartFailed, live_process, read_json
from orderflow.ops.stack.redis import Redis
from orderflow.ops.stack.stack import LocalStack
from orderflow.ops.stack.watchdog import Watchdog

RUNNING = dict.fromkeys(["Kafka", "Redis", "PostgreSQL", "mail sink"], "running")


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def states(stack: LocalStack) -> dict[str, str]:
    return {part.name: part.state for part in stack.status()}


def recorded(folder: Path) -> list[tuple[int, float]]:
    """(pid, start time) of every process that is recorded under a folder."""
    records = [read_json(path) for path in folder.rglob("process.json")]
    return [(record["pid"], record["started"]) for record in records if record]


def families(folder: Path) -> list[psutil.Process]:
    parents = [process for pid, started in recorded(folder) if (process := live_process(pid, started))]
    return [*parents, *(child for parent in parents for child in parent.children(recursive=True))]


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    """Write one record to partition 0 and wait for the broker's word."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]


def create_topic(bootstrap_servers: str, topic: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.create_topics([NewTopic(topic, 1, replicas)], operation_timeout=30).values():
        done.result(30)


def send(mail: MailSink, recipient: str, subject: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "orders@shop.example", recipient, subject
    message["Message-ID"] = f"<{subject}@shop.example>"
    message.set_content("Thank you.")
    with smtplib.SMTP(mail.host, mail.port, timeout=10) as client:
        client.send_message(message)


def orderflow(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ORDERFLOW_")}
    command = [sys.executable, "-m", "orderflow", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, text=True, capture_output=True, check=False, timeout=110)


@pytest.fixture
def stack(local_stack: LocalStack) -> LocalStack:
    """In this module always the local one, whatever the others use."""
    return local_stack


@pytest.fixture
def lone_redis(tmp_path: Path) -> Iterator[Redis]:
    part = Redis(tmp_path / "redis", free_ports(1)[0])
    yield part
    part.kill()


def test_every_part_answers(stack: LocalStack) -> None:
    assert states(stack) == RUNNING


def test_settings_of_a_test_point_at_an_empty_corner_of_the_stack(settings: Settings) -> None:
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
    with redis.Redis.from_url(settings.redis.url.get_secret_value()) as client:
        assert client.dbsize() == 0
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_kafka_killed_comes_back_on_its_port_with_its_records(stack: LocalStack, source_topic: str) -> None:
    servers = stack.kafka.bootstrap_servers
    create_topic(servers, source_topic)
    produce(servers, source_topic, b"before")
    stack.kafka.kill()
    assert states(stack) == RUNNING | {"Kafka": "stopped"}
    stack.kafka.start()
    produce(servers, source_topic, b"after")
    assert stack.kafka.bootstrap_servers == servers


def test_redis_killed_keeps_what_is_on_disk(stack: LocalStack, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("claim", "mine")
        # While a disk is slow the append-only file may be two seconds behind the answers.
        assert client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
    stack.redis.kill()
    stack.redis.start()
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("claim") == b"mine"


def test_postgresql_killed_keeps_what_was_committed(stack: LocalStack, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS answer")
    stack.postgres.kill()
    stack.postgres.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (7,)


def test_postgresql_is_no_open_door(stack: LocalStack) -> None:
    wrong = stack.postgres.dsn.replace(stack.layout.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    process = stack.postgres.daemon.process
    assert process is not None
    assert process.uids().effective != 0


def test_a_paused_part_is_silent_until_it_is_resumed(stack: LocalStack) -> None:
    stack.mail.pause()
    try:
        assert states(stack) == RUNNING | {"mail sink": "silent"}
    finally:
        stack.mail.resume()
    eventually(lambda: states(stack) == RUNNING)


def test_mail_is_kept_or_refused_as_its_address_asks(stack: LocalStack) -> None:
    ann, bob = "ann+451x1@shop.example", "bob+550@shop.example"
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        send(stack.mail, ann, "first-try")
    assert refused.value.recipients[ann][0] == 451
    send(stack.mail, ann, "second-try")
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send(stack.mail, bob, "never")
    kept = [(mail.recipients, mail.message_id) for mail in stack.mail.messages() if ann in mail.recipients]
    assert kept == [((ann,), "<second-try@shop.example>")]
    assert [item.code for item in stack.mail.refusals() if item.recipient in {ann, bob}] == [451, 550]


def test_a_part_that_dies_is_told_with_the_end_of_its_log(lone_redis: Redis) -> None:
    lone_redis.start()
    lone_redis.stop()
    for path in (lone_redis.folder / "data" / "appendonlydir").glob("*.incr.aof"):
        path.write_bytes(b"*1\r\n$5\r\nhello no redis command\r\n")
    with pytest.raises(PartFailed, match=r"(?s)Redis died while starting; the end of .*log:.*Bad file format"):
        lone_redis.start()


@pytest.mark.long
def test_a_stack_for_people_is_joined_reports_the_dead_and_leaves_nothing(tmp_path: Path) -> None:
    first = free_ports(1)[0]
    _, redis_port, postgres, smtp = ports = [first, *free_ports(3)]
    names = ("--kafka-port", "--redis-port", "--postgres-port", "--smtp-port")
    options = [word for name, port in zip(names, ports, strict=True) for word in (name, str(port))]
    folder = tmp_path / ".orderflow"
    try:
        up = orderflow(tmp_path, "stack", "up", *options)
        assert up.returncode == 0, up.stderr
        assert stat.S_IMODE((folder / "env").stat().st_mode) == 0o600
        settings = load({}, env_file=folder / "env")
        assert settings.kafka.bootstrap_servers == f"{HOST}:{first}"
        assert settings.smtp.port == smtp
        assert f":{redis_port}/" in settings.redis.url.get_secret_value()
        assert f":{postgres}/" in settings.database.dsn.get_secret_value()

        before = recorded(folder)
        again = orderflow(tmp_path, "stack", "up")
        assert again.returncode == 0, again.stderr
        assert "It ran already" in again.stdout
        assert recorded(folder) == before

        other = orderflow(tmp_path, "stack", "up", "--brokers", "3")
        assert other.returncode == Refused.exit_code
        assert "stack down --wipe" in other.stderr

        victim = LocalStack.join(folder).redis.daemon.process
        assert victim is not None
        victim.kill()
        eventually(lambda: not psutil.pid_exists(victim.pid) or victim.status() == psutil.STATUS_ZOMBIE)
        status = orderflow(tmp_path, "stack", "status")
        assert status.returncode == 1
        assert "Redis died; the end of" in status.stdout
        assert "Ready to accept connections" in status.stdout

        alive = families(folder)
        down = orderflow(tmp_path, "stack", "down")
        assert down.returncode == 0, down.stderr
        assert [process for process in alive if process.is_running()] == []
        assert recorded(folder) == []
        assert not (folder / "env").exists()
        assert orderflow(tmp_path, "stack", "status").returncode == 4
    finally:
        orderflow(tmp_path, "stack", "down", "--wipe")
    assert not folder.exists()


def test_a_taken_port_is_named_with_its_owner_and_the_option_that_moves_it(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        free = Ports.free()
        stack = LocalStack(
            tmp_path / "state", Layout(Ports(free.kafka, free.controllers, free.redis, free.postgres, port))
        )
        told = rf"port {port} for mail sink is taken by .*\(pid {os.getpid()}\).*--smtp-port"
        with pytest.raises(Misconfigured, match=told):
            stack.up()
    assert recorded(tmp_path) == []


@pytest.mark.long
def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    layout = Layout(Ports.free(), Options(durable=False))
    stack = LocalStack(tmp_path / "state", layout)
    broken = stack.redis.folder / "data" / "appendonlydir"
    broken.mkdir(parents=True)
    (broken / "appendonly.aof.manifest").write_text("no manifest")
    try:
        with pytest.raises(PartFailed, match="Redis died while starting"):
            stack.up()
        assert recorded(tmp_path) == []
    finally:
        stack.down(wipe=True)


STARTER = """
import sys, time
from pathlib import Path
from orderflow.ops.stack.stack import LocalStack

with LocalStack.temporary(Path(sys.argv[1])):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_a_killed_starter_takes_its_stack_with_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(state)], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    try:
        assert starter.stdout.readline() == "up\n"
        alive = families(state)
        home = Path((state / "postgres" / "home").read_text()) if os.geteuid() == 0 else state
        assert len(alive) > len(RUNNING)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        starter.stdout.close()
    eventually(lambda: not any(process.is_running() for process in alive))
    eventually(lambda: not state.exists() and not home.exists())


@pytest.mark.long(whole=True)
def test_three_brokers_go_on_without_one(tmp_path: Path) -> None:
    options = Options(brokers=3, quick_groups=True, durable=False)
    stack = LocalStack(tmp_path / "state", Layout(Ports.free(3), options))
    stack.state_dir.mkdir()
    with Watchdog(tmp_path), contextlib.ExitStack() as whole:
        whole.callback(stack.kafka.kill)
        stack.kafka.start()
        create_topic(stack.kafka.bootstrap_servers, "orders", replicas=3)
        produce(stack.kafka.bootstrap_servers, "orders", b"by three")
        stack.kafka.brokers[0].kill()
        produce(stack.kafka.bootstrap_servers, "orders", b"by two")
        stack.kafka.start()
        assert [broker.answer() for broker in stack.kafka.brokers] == ["Apache Kafka, 3 broker(s)"] * 3
        stack.kafka.stop()
