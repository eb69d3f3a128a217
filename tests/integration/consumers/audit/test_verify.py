"""`audit verify` against a real topic: it finds what is wrong, and nothing else."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import Connection
from psycopg_pool import ConnectionPool
from typer.testing import CliRunner

from consumers.audit.group import open_rows, record
from consumers.audit.verify import verify
from orderflow.cli import app
from orderflow.core.errors import Misconfigured, OrderflowError
from orderflow.core.settings import Settings
from orderflow.testing.samples import delivery_of, order_cancelled, order_created, order_paid
from schemas import codec
from schemas.events import Event
from schemas.headers import event_headers

Pool = ConnectionPool[Connection]


@pytest.fixture
def pool(provisioned: Settings) -> Iterator[Pool]:
    with open_rows(provisioned) as opened:
        yield opened


@pytest.fixture
def topic(provisioned: Settings) -> str:
    """The source topic with three partitions, the last of which stays empty."""
    client = AdminClient({"bootstrap.servers": provisioned.kafka.bootstrap_servers})
    name = provisioned.kafka.source_topic
    client.create_topics([NewTopic(name, 3, 1)])[name].result(10)
    return name


def producer(settings: Settings, **more: str) -> Producer:
    return Producer({"bootstrap.servers": settings.kafka.bootstrap_servers, "linger.ms": 0, **more})


def put(source: Producer, topic: str, events: Sequence[Event]) -> None:
    for event in events:
        partition = event.order_id.int % 2
        source.produce(topic, codec.encode(event), partition=partition, headers=list(event_headers(event)))


def written(settings: Settings, topic: str, events: Sequence[Event]) -> None:
    source = producer(settings)
    put(source, topic, events)
    assert source.flush(10) == 0


def recorded(pool: Pool, events: Sequence[Event]) -> None:
    record([(event, delivery_of(event, "audit")) for event in events], pool)


def history(orders: int) -> list[Event]:
    events: list[Event] = []
    for _ in range(orders):
        order = order_created()
        events += [order, order_paid(order), order_cancelled(order)]
    return events


def run(settings: Settings, tmp_path: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.chdir(tmp_path)
    environ = {
        "ORDERFLOW_DATABASE__DSN": settings.database.dsn.get_secret_value(),
        "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "ORDERFLOW_KAFKA__SOURCE_TOPIC": settings.kafka.source_topic,
    }
    result = CliRunner().invoke(app, ["audit", "verify", *arguments], env=environ)
    code = result.exception.exit_code if isinstance(result.exception, OrderflowError) else result.exit_code
    return code, result.stdout


def test_an_empty_topic_and_no_rows_agree(provisioned: Settings, topic: str) -> None:
    del topic
    report = verify(provisioned)

    assert not report.wrong
    assert (report.records, report.events, report.rows, report.unread) == (0, 0, 0, 0)


def test_repeated_and_foreign_records_are_counted_and_are_no_faults(
    provisioned: Settings, topic: str, pool: Pool
) -> None:
    events = history(20)
    recorded(pool, events)
    written(provisioned, topic, [*events, *events[:7]])
    source = producer(provisioned)
    stranger = order_created()
    source.produce(topic, b"garbage", partition=0)
    source.produce(topic, None, partition=0, key=b"tombstone")
    source.produce(topic, codec.encode(stranger), partition=1)  # no ce_id
    source.produce(topic, codec.encode(stranger), partition=1, headers=list(event_headers(order_created())))
    assert source.flush(10) == 0
    told: list[tuple[int, int]] = []

    report = verify(provisioned, lambda passed, total: told.append((passed, total)))

    assert not report.wrong
    assert (report.records, report.foreign, report.events, report.repeated) == (71, 4, 60, 7)
    assert (report.rows, report.unread) == (60, 0)
    assert told[0] == (0, 71)
    assert told[-1] == (71, 71)


def test_each_kind_of_fault_is_named(
    provisioned: Settings,
    topic: str,
    pool: Pool,
    admin: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = history(10)
    missing, changed, invented = events[3], events[8], order_created()
    recorded(pool, [*(event for event in events if event is not missing), invented])
    admin.execute("UPDATE audit.rows SET value_sha256 = sha256('other') WHERE event_id = %s", (changed.event_id,))
    written(provisioned, topic, events)

    report = verify(provisioned)

    assert report.wrong
    assert (report.missing.count, report.missing.event_ids) == (1, (str(missing.event_id),))
    assert (report.different.count, report.different.event_ids) == (1, (str(changed.event_id),))
    assert (report.without_record.count, report.without_record.event_ids) == (1, (str(invented.event_id),))

    code, out = run(provisioned, tmp_path, monkeypatch=monkeypatch)
    assert code == 1
    assert all(str(event.event_id) in out for event in (missing, changed, invented))
    code, out = run(provisioned, tmp_path, "--json", monkeypatch=monkeypatch)
    assert code == 1
    assert json.loads(out)["missing"] == {"count": 1, "event_ids": [str(missing.event_id)]}
    assert json.loads(out)["agree"] is False


def test_it_ends_behind_transaction_markers_and_sees_no_aborted_record(
    provisioned: Settings, topic: str, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, aborted = history(5), history(5)
    recorded(pool, events)
    source = producer(provisioned, **{"transactional.id": f"audit-{uuid4()}"})
    source.init_transactions(20)
    for batch, end in ((events, source.commit_transaction), (aborted, source.abort_transaction)):
        source.begin_transaction()
        put(source, topic, batch)
        source.flush(10)
        end(20)

    report = verify(provisioned)

    assert not report.wrong
    assert (report.records, report.events, report.unread) == (15, 15, 0)
    code, out = run(provisioned, tmp_path, monkeypatch=monkeypatch)
    assert code == 0
    assert "every event has its row" in out


def test_what_an_open_transaction_hides_is_unread_and_the_exit_code_says_so(
    provisioned: Settings, topic: str, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = history(4)
    recorded(pool, events)
    written(provisioned, topic, events)
    source = producer(provisioned, **{"transactional.id": f"audit-{uuid4()}"})
    source.init_transactions(20)
    source.begin_transaction()
    put(source, topic, [order_created(order_id=events[0].order_id)])
    source.flush(10)
    try:
        report = verify(provisioned)
        code, out = run(provisioned, tmp_path, "--json", monkeypatch=monkeypatch)
    finally:
        source.abort_transaction(20)

    assert not report.wrong
    assert (report.events, report.unread) == (12, 1)
    assert code == 3
    assert json.loads(out)["unread"] == 1


def test_a_missing_topic_names_the_command(provisioned: Settings) -> None:
    with pytest.raises(Misconfigured, match="orderflow provision"):
        verify(provisioned)
