"""No report, a report that says timed out, a report that says too large: the row stays unpublished."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database, kafka
from orderflow.core.kafka import Headers, Publisher, Report
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers import relay as relay_module
from producers.relay import Relay
from producers.sender import Sender

Pool = ConnectionPool[Connection]


class Scripted:
    """A sender that takes every record and gives the reports that the test wants."""

    failed = False

    def __init__(self, report: Callable[[int], Report[int] | None]) -> None:
        self.sent: list[int] = []
        self._report = report
        self._reports: list[Report[int]] = []

    def send(self, ticket: int, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        del topic, key, value, headers
        self.sent.append(ticket)
        told = self._report(ticket)
        self._reports += [told] if told else []
        return True

    def poll(self, timeout: float) -> list[Report[int]]:
        del timeout
        reports, self._reports = self._reports, []
        return reports

    def renew(self) -> list[Report[int]]:
        return []


@pytest.fixture
def row(shop_tables: Settings, shop_pool: Pool) -> int:
    with shop_pool.connection() as connection:
        found = connection.execute(
            "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
            "VALUES (gen_random_uuid(), %s, 1, %s, 'k', 'v', '[]') RETURNING id",
            (uuid4(), shop_tables.kafka.source_topic),
        ).fetchone()
        assert found is not None
        return int(found[0])


def state(pool: Pool) -> dict[str, Any]:
    with pool.connection() as connection:
        found = connection.execute(
            "SELECT published_at IS NOT NULL, quarantined_at IS NOT NULL, attempts, last_error FROM api.outbox"
        ).fetchone()
        assert found is not None
        return dict(zip(("published", "quarantined", "attempts", "error"), found, strict=True))


@contextmanager
def leading(settings: Settings, sender: Sender) -> Iterator[Relay]:
    with database.connect(settings.database, "api", autocommit=True) as connection:
        relay = Relay(connection, sender, Metrics(), batch_rows=10, poll_seconds=0.01)
        yield relay
        relay.drain(0)


def test_without_a_report_a_row_is_neither_marked_nor_sent_twice(
    shop_tables: Settings, shop_pool: Pool, row: int
) -> None:
    sender = Scripted(lambda _: None)
    with leading(shop_tables, sender) as relay:
        for _ in range(20):
            relay.turn()
        assert relay.drain(0.1) == 1
    assert sender.sent == [row]
    assert state(shop_pool) == {"published": False, "quarantined": False, "attempts": 0, "error": None}


@pytest.mark.parametrize("code", [KafkaError._MSG_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._PURGE_QUEUE])
def test_a_failed_report_leaves_the_row_to_be_sent_again(
    shop_tables: Settings, shop_pool: Pool, row: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "FAILURE_PAUSE_SECONDS", 0.0)
    answers = [KafkaError(code), KafkaError(code), None]
    sender = Scripted(lambda ticket: Report(ticket, answers.pop(0)))
    with leading(shop_tables, sender) as relay:
        while len(sender.sent) < 2:
            relay.turn()
        now = state(shop_pool)
        assert (now["published"], now["quarantined"]) == (False, False)
        assert now["attempts"] >= 1
        assert now["error"]
        while not state(shop_pool)["published"]:
            relay.turn()
    assert sender.sent == [row, row, row]


def test_a_failure_outside_the_row_pauses_the_relay(shop_tables: Settings, row: int) -> None:
    sender = Scripted(lambda ticket: Report(ticket, KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)))
    with leading(shop_tables, sender) as relay:
        ended = time.monotonic() + 0.5
        while time.monotonic() < ended:
            relay.turn()
    assert sender.sent == [row]


def test_a_record_that_is_refused_for_itself_is_quarantined(shop_tables: Settings, shop_pool: Pool, row: int) -> None:
    sender = Scripted(lambda ticket: Report(ticket, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    with leading(shop_tables, sender) as relay:
        while not state(shop_pool)["quarantined"]:
            relay.turn()
        for _ in range(10):
            relay.turn()
    assert state(shop_pool)["published"] is False
    assert sender.sent == [row]


def test_while_no_broker_answers_the_row_stays_and_is_published_afterwards(
    shop: Settings, shop_pool: Pool, row: int, published: Callable[[], list[Message]]
) -> None:
    nobody = kafka.producer_config(shop.kafka) | {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 500}
    with leading(shop, Publisher(nobody)) as relay:
        deadline = time.monotonic() + 30
        while not state(shop_pool)["attempts"]:
            assert time.monotonic() < deadline
            relay.turn()
        relay.abandon()
    assert state(shop_pool)["published"] is False
    assert published() == []
    with leading(shop, Publisher(kafka.producer_config(shop.kafka))) as relay:
        while not state(shop_pool)["published"]:
            assert time.monotonic() < deadline + 30
            relay.turn()
    assert [message.key() for message in published()] == [b"k"]
    assert row
