"""A worker's desk without a broker: real claims on a real Redis, real lanes and ledger, copies confirmed by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumers.runtime.admission import Admission
from consumers.runtime.claims import Claims, payload_hash
from consumers.runtime.group import ConsumerGroup, Outcome
from consumers.runtime.handling import Result
from consumers.runtime.inflight import InFlight
from consumers.runtime.lanes import Lanes, Run
from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.record import Record
from consumers.runtime.settlement import Settlement
from orderflow.core import clock
from orderflow.testing import make_group, order_created
from retry.failure import Failure
from retry.policy import Stage, ToDlq, ToTier
from retry.router import Confirmed
from retry.story import Pair
from schemas import codec
from schemas.events import Event
from schemas.headers import event_headers
from tests import records

TIERS = (1, 5, 30)
SLOTS = 100


@dataclass
class Copies:
    """Stands for the router: a copy is confirmed when the test says so."""

    sent: list[tuple[Record, ToTier | ToDlq, Failure, Pair]] = field(default_factory=list)
    confirmed: list[Confirmed[Record]] = field(default_factory=list)
    unroutable: int = 0

    def send(self, ticket: Record, record: Record, verdict: ToTier | ToDlq, failure: Failure) -> Pair:
        story = record.story
        dead = isinstance(verdict, ToDlq)
        pair = (story.replay_count + 1, 0) if dead else (story.replay_count, failure.attempts + story.rounds)
        self.sent.append((ticket, verdict, failure, pair))
        return pair

    def confirm(self) -> None:
        self.confirmed += [Confirmed(ticket, "topic", verdict, pair, 1, 1) for ticket, verdict, _, pair in self.sent]
        self.sent.clear()

    def poll(self, _now: float) -> list[Confirmed[Record]]:
        confirmed, self.confirmed = self.confirmed, []
        return confirmed


class Desk:
    """One worker's lanes, ledger, claims, admission and settlement, moved by hand."""

    def __init__(self, claims: Claims, *, batches: bool = False, group: ConsumerGroup | None = None) -> None:
        self.claims = claims
        self.lanes = Lanes("partition", run_records=10) if batches else Lanes("key")
        self.ledger, self.in_flight, self.copies = OffsetLedger(), InFlight(), Copies()
        self.settlement = Settlement(
            group or make_group(),
            TIERS,
            self.lanes,
            self.ledger,
            claims,
            self.in_flight,
            self.copies,  # type: ignore[arg-type]
        )
        self.admission = Admission(self.lanes, claims, self.in_flight, self.settlement, grace_seconds=900.0)
        self.ledger.assign(("orders", 0), 1, 0)

    def deliver(self, event: Event | None = None, *, offset: int = 0, attempts: int = 0, **fields: Any) -> Record:
        """Take in one record of partition 0, as the reader makes it."""
        event = event or order_created()
        value = codec.encode(event)
        given: dict[str, Any] = {
            "key": str(event.order_id).encode(),
            "value": value,
            "headers": [*event_headers(event)],
            "event_id": str(event.event_id),
            "payload_hash": payload_hash(value),
        }
        record = records.make(offset=offset, attempts=attempts, **(given | fields))
        self.ledger.deliver(record.place, record.offset, len(value))
        self.lanes.add(record, clock.monotonic())
        return record

    def admit(self) -> list[Run]:
        """Claim what may start, mark it as the worker does, and return it."""
        now = clock.monotonic()
        runs = self.admission.admit(now, SLOTS)
        for record in (record for run in runs for record in run):
            record.started = True
        return runs

    def finish(self, record: Record, error: Exception | None = None, stage: Stage = Stage.HANDLE) -> None:
        """Say how its handler ended."""
        self.settlement.finished(Result([record], Outcome.PROCESSED, error, stage))

    def settle(self) -> None:
        """Take confirmations, and tell Redis."""
        self.settlement.confirm(clock.monotonic())
        self.settlement.flush()

    def unresolved(self) -> int:
        """Return how many delivered records are not resolved."""
        return self.ledger.held(("orders", 0))[0]


@pytest.fixture
def open_desk(open_claims: Callable[..., Claims]) -> Callable[..., Desk]:
    """Make one more worker's desk in front of the same Redis: `open_desk(lease_seconds=30.0, batches=False)`."""

    def make(*, lease_seconds: float = 30.0, **how: Any) -> Desk:
        return Desk(open_claims(lease_seconds=lease_seconds), **how)

    return make
