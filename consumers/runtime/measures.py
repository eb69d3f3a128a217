"""A worker's counts, kept as plain ints on the hot path and put into the metrics once a second."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from consumers.runtime.admission import Admission
from consumers.runtime.executors.interface import Executor
from consumers.runtime.group import Outcome
from consumers.runtime.intake import Intake
from consumers.runtime.lanes import Lanes
from consumers.runtime.settlement import Settlement
from orderflow.core import clock
from orderflow.core.holds import HoldReason
from orderflow.core.metrics import Metrics

_EVERY_SECONDS = 1.0


class Measures:
    """Copies the counts of a worker's parts into its metrics."""

    def __init__(
        self,
        group: str,
        metrics: Metrics,
        intake: Intake,
        lanes: Lanes,
        executor: Executor,
        admission: Admission,
        settlement: Settlement,
    ) -> None:
        self._group = group
        self._metrics = metrics
        self._intake = intake
        self._lanes = lanes
        self._executor = executor
        self._admission = admission
        self._settlement = settlement
        self._tally = settlement.tally
        self._told: dict[tuple[str, ...], int] = {}
        self._next = 0.0
        self._inflight = metrics.gauge("orderflow_consumer_inflight_records", group=group)
        self._oldest = metrics.gauge("orderflow_consumer_oldest_inflight_seconds", group=group)
        self._held = {
            reason: metrics.gauge("orderflow_consumer_held_records", group=group, reason=reason)
            for reason in HoldReason
        }
        metrics.show("orderflow_consumer_process_duration_seconds", self._tally.duration, group=group)
        metrics.show("orderflow_consumer_end_to_end_seconds", self._tally.age, group=group)

    def flush_if_due(self, now: float) -> None:
        """Flush at most once a second."""
        if now >= self._next:
            self._next = now + _EVERY_SECONDS
            self.flush()

    def flush(self) -> None:
        """Bring the metrics up to date."""
        # Both skip: a handler says so of an event, and types that nobody handles are passed over.
        passed_over = Counter({(topic, str(Outcome.SKIPPED)): number for topic, number in self._intake.skipped.items()})
        for (topic, outcome), number in (self._tally.records + passed_over).items():
            self._grow("orderflow_consumer_records_total", number, topic=topic, outcome=outcome)
        for (to, error), number in self._tally.copies.items():
            if to == "dlq":
                self._grow("orderflow_dlq_published_total", number, error=error)
            else:
                self._grow("orderflow_retry_published_total", number, tier=to, error=error)
        self._all("orderflow_claims_total", "result", self._admission.answers)
        self._all("orderflow_consumer_rebalances_total", "kind", self._intake.rebalances)
        self._all("orderflow_consumer_commits_total", "outcome", self._intake.commits.outcomes)
        self._all("orderflow_decode_errors_total", "reason", self._tally.decode_errors)
        now = clock.monotonic()
        running = [call.began for call in self._executor.running()]
        self._inflight.set(len(running))
        self._oldest.set(now - min(running) if running else 0.0)
        held = self._lanes.held() | {HoldReason.UNROUTABLE: self._settlement.unroutable}
        for reason, gauge in self._held.items():
            gauge.set(held.get(reason, 0))

    def _all(self, name: str, label: str, counts: Mapping[Any, int]) -> None:
        for value, number in counts.items():
            self._grow(name, number, **{label: str(value)})

    def _grow(self, name: str, number: int, **labels: str) -> None:
        key = (name, *labels.values())
        grown = number - self._told.get(key, 0)
        if grown:
            self._told[key] = number
            self._metrics.counter(name, group=self._group, **labels).inc(grown)
