"""A fatal producer error makes every later produce fail: a new producer takes over, and order is kept."""

import time
from uuid import uuid4

from confluent_kafka import KafkaError
from psycopg import Connection
from psycopg_pool import ConnectionPool

from orderflow.core import database
from orderflow.core.kafka import Headers, Report
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from producers.relay import Relay


class FatalOnce:
    """Like the publisher: the third record brings a fatal error, and from then on only `renew` helps."""

    def __init__(self) -> None:
        self.failed = False
        self.renewed_after: float | None = None
        self.log: list[tuple[bytes, bytes]] = []
        self._failed_at = 0.0
        self._outstanding: list[int] = []
        self._reports: list[Report[int]] = []
        self._sent: dict[int, tuple[bytes, bytes]] = {}

    def send(self, ticket: int, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        del topic, headers
        self._sent[ticket] = (key or b"", value or b"")
        if not self.failed and self.renewed_after is None and len(self.log) == 2:
            self.failed, self._failed_at = True, time.monotonic()
        if self.failed:
            self._outstanding.append(ticket)
            return True
        self.log.append(self._sent[ticket])
        self._reports.append(Report(ticket, None))
        return True

    def poll(self, timeout: float) -> list[Report[int]]:
        del timeout
        reports, self._reports = self._reports, []
        return reports

    def renew(self) -> list[Report[int]]:
        self.failed, self.renewed_after = False, time.monotonic() - self._failed_at
        first, *others = self._outstanding
        self._outstanding.clear()
        # Its confirmation was under way; the others are unknown.
        self.log.append(self._sent[first])
        return [Report(first, None), *(Report(other, KafkaError(KafkaError._PURGE_QUEUE)) for other in others)]


def test_a_new_producer_goes_on_where_the_old_one_failed(
    shop_tables: Settings, shop_pool: ConnectionPool[Connection]
) -> None:
    keys = [str(uuid4()) for _ in range(3)]
    with shop_pool.connection() as connection:
        for version in (1, 2, 3):
            for key in keys:
                connection.execute(
                    "INSERT INTO api.outbox (event_id, aggregate_id, aggregate_version, topic, key, value, headers) "
                    "VALUES (gen_random_uuid(), %s, %s, 't', %s, %s, '[]')",
                    (key, version, key.encode(), b"%d" % version),
                )
    sender = FatalOnce()
    deadline = time.monotonic() + 30
    with database.connect(shop_tables.database, "api", autocommit=True) as own, shop_pool.connection() as watch:
        relay = Relay(own, sender, Metrics(), batch_rows=10, poll_seconds=0.05)
        while watch.execute("SELECT FROM api.outbox WHERE published_at IS NULL").fetchall():
            assert time.monotonic() < deadline, "it did not happen in time"
            relay.turn()
        relay.drain(1)
    assert sender.renewed_after is not None
    assert sender.renewed_after < 5
    for key in keys:
        assert [value for sent, value in sender.log if sent == key.encode()] == [b"1", b"2", b"3"]
