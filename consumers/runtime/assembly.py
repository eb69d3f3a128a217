"""Puts a worker together from the settings and a group, and runs it."""

from typing import Any

from consumers.runtime import claims as redis_claims
from consumers.runtime import dependencies
from consumers.runtime.admission import Admission
from consumers.runtime.bounds import Bounds
from consumers.runtime.brokerclock import BrokerClock
from consumers.runtime.claims import Claims
from consumers.runtime.executors.interface import Executor
from consumers.runtime.executors.loop import EventLoop, LoopExecutor
from consumers.runtime.executors.threads import ThreadExecutor
from consumers.runtime.group import ConsumerGroup
from consumers.runtime.handling import Handling
from consumers.runtime.inflight import InFlight
from consumers.runtime.intake import Intake
from consumers.runtime.lanes import Lanes
from consumers.runtime.measures import Measures
from consumers.runtime.offsets import OffsetLedger
from consumers.runtime.reading import Reader
from consumers.runtime.record import Record
from consumers.runtime.settlement import Settlement
from consumers.runtime.worker import Pace, Worker
from orderflow.core import kafka, log
from orderflow.core.errors import Misconfigured
from orderflow.core.kafka import Publisher
from orderflow.core.lifecycle import Stop
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings, WorkerSettings
from orderflow.core.topics import GroupTopics
from retry.router import Copy, Router
from schemas.catalog import Catalog

_log = log.get(__name__)

_KEY_RECORDS = 32  # of one key, handled one after the other without a word in between
_READ_RECORDS = 500  # at most this many per turn; a raw loop with more is no faster


def run_group(group: ConsumerGroup, settings: Settings, stop: Stop, metrics: Metrics | None = None) -> None:
    """Run one worker of a group until `stop`; returns when everything is finished or released, and committed.

    Raises `Misconfigured` when the group has no handlers, or Redis or a dependency of its handlers is
    not there; `HandlerHung` when a handler never came back.
    """
    if not group.types:
        raise Misconfigured(f"group {group.name} has no handlers: add @group.on(...) or @group.on_batch(...)")
    claims = _claims(group, settings)
    with dependencies.opened(group, settings) as (opened, loop):
        worker, measures = assemble(group, settings, claims, opened, loop, metrics or Metrics())
        _log.info("worker started", slots=settings.worker.slots, group_protocol=settings.kafka.group_protocol)
        try:
            worker.run(stop, measures.flush_if_due)
        finally:
            measures.flush()
        _log.info("worker stopped")


def assemble(
    group: ConsumerGroup,
    settings: Settings,
    claims: Claims | None,
    opened: Any,
    loop: EventLoop | None,
    metrics: Metrics,
) -> tuple[Worker, Measures]:
    """Build the parts of a worker, each knowing only those it needs."""
    pace = settings.worker
    topics = GroupTopics(settings.kafka.source_topic, group.name, pace.retry_seconds)
    ledger, in_flight, clock = OffsetLedger(), InFlight(), BrokerClock()
    lanes = (
        Lanes("partition", run_records=pace.batch_records)
        if group.batch_handler
        # Claims are taken for what gets a slot now, and a key has one; without them a key's next records may follow.
        else Lanes(group.ordering, run_records=1 if claims else _KEY_RECORDS)
    )
    handling = Handling(group, opened, deadline_seconds=pace.deadline_seconds)
    executor = _executor(handling, loop, pace, ahead=claims is None)
    router: Router[Record] = Router(Publisher[Copy[Record]](kafka.producer_config(settings.kafka)), topics)
    settlement = Settlement(group, pace.retry_seconds, lanes, ledger, claims, in_flight, router)
    admission = Admission(lanes, claims, in_flight, settlement, grace_seconds=pace.unknown_schema_grace_seconds)
    read_records = min(_READ_RECORDS, pace.held_records)
    epoch = claims.idempotency_epoch if claims else 0
    intake = Intake(
        kafka.consumer_config(settings.kafka, topics.group_id, max_poll_seconds=pace.max_poll_seconds),
        topics,
        Reader(group, topics, Catalog.load(), clock, idempotency_epoch=epoch),
        ledger,
        Bounds(ledger, records=pace.held_records, size=pace.held_bytes, read_records=read_records),
        commit_seconds=pace.commit_seconds,
    )
    worker = Worker(
        Pace(
            read_records=read_records,
            deadline=pace.deadline_seconds,
            lease=pace.lease_seconds,
            revoke_budget=pace.revoke_budget_seconds,
        ),
        intake=intake,
        lanes=lanes,
        executor=executor,
        admission=admission,
        settlement=settlement,
    )
    return worker, Measures(group.name, metrics, intake, lanes, executor, admission, settlement)


def _executor(handling: Handling, loop: EventLoop | None, pace: WorkerSettings, *, ahead: bool) -> Executor:
    if loop is None:
        return ThreadExecutor(handling, slots=pace.slots, ahead=ahead)
    return LoopExecutor(handling, loop, slots=pace.slots, deadline=pace.deadline_seconds, ahead=ahead)


def _claims(group: ConsumerGroup, settings: Settings) -> Claims | None:
    if not group.claims:
        return None
    claims = Claims(
        redis_claims.connect(settings.redis),
        group.name,
        lease_seconds=settings.worker.lease_seconds,
        ttl=settings.worker.claim_ttl,
    )
    claims.load()
    return claims
