"""Every metric of the product in one typed table, and a registry that makes only those."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: base units, `_total` on counters only, labels from closed sets."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _FAST


METRICS: Mapping[str, Metric] = {
    # worker
    "orderflow_consumer_records_total": Metric(
        "counter", "Records resolved by a worker, by outcome.", ("group", "topic", "outcome")
    ),
    "orderflow_consumer_process_duration_seconds": Metric("histogram", "Time inside the handler.", ("group",)),
    "orderflow_consumer_end_to_end_seconds": Metric(
        "histogram", "Age of an event when its effect was done.", ("group",), _SLOW
    ),
    "orderflow_consumer_inflight_records": Metric("gauge", "Records whose handler runs.", ("group",)),
    "orderflow_consumer_oldest_inflight_seconds": Metric("gauge", "Age of the longest running handler.", ("group",)),
    "orderflow_consumer_held_records": Metric("gauge", "Records held back, by reason.", ("group", "reason")),
    "orderflow_consumer_rebalances_total": Metric("counter", "Assignments, revocations, losses.", ("group", "kind")),
    "orderflow_consumer_commits_total": Metric("counter", "Offset commits, by outcome.", ("group", "outcome")),
    "orderflow_claims_total": Metric("counter", "Answers of Redis to a claim.", ("group", "result")),
    "orderflow_decode_errors_total": Metric("counter", "Records that could not be read.", ("group", "reason")),
    "orderflow_retry_published_total": Metric("counter", "Copies put on a retry topic.", ("group", "tier", "error")),
    "orderflow_dlq_published_total": Metric("counter", "Copies put on the dead-letter topic.", ("group", "error")),
    # API and relay
    "orderflow_http_request_duration_seconds": Metric(
        "histogram", "HTTP requests of the order API.", ("method", "route", "status")
    ),
    "orderflow_outbox_unpublished_records": Metric("gauge", "Outbox rows that wait for the relay."),
    "orderflow_outbox_oldest_unpublished_seconds": Metric("gauge", "Age of the oldest of them."),
    "orderflow_outbox_quarantined_records": Metric("gauge", "Outbox rows that Kafka refused for themselves."),
    "orderflow_publish_total": Metric("counter", "Delivery reports of the relay, by outcome.", ("outcome",)),
}


class Buckets:
    """A histogram's counts as plain ints: `Histogram.observe` costs more than many a handler."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, values: Sequence[float]) -> None:
        """Count values, which mostly lie in one bucket."""
        if not values:
            return
        self.total += sum(values)
        lowest, highest = bisect_left(self.bounds, min(values)), bisect_left(self.bounds, max(values))
        if lowest == highest:
            self.counts[lowest] += len(values)
            return
        for value in values:
            self.counts[bisect_left(self.bounds, value)] += 1


class _BucketsCollector(Collector):
    """Shows `Buckets` of one metric to the registry."""

    def __init__(self, name: str, metric: Metric) -> None:
        self._name, self._metric = name, metric
        self.children: dict[tuple[str, ...], Buckets] = {}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._metric.help, labels=self._metric.labels)
        for labels, buckets in self.children.items():
            ends = [*map(floatToGoString, buckets.bounds), "+Inf"]
            family.add_metric(labels, list(zip(ends, accumulate(buckets.counts), strict=True)), buckets.total)
        yield family


class Metrics:
    """The metrics of one process. Children are bound once by the caller and kept."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        self._shown: dict[str, _BucketsCollector] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        """Return the counter of the table with these label values."""
        made = self._get(name)
        assert isinstance(made, Counter)  # noqa: S101 - the table is ours; mypy cannot read it
        return made.labels(**labels) if labels else made

    def gauge(self, name: str, **labels: str) -> Gauge:
        """Return the gauge of the table with these label values."""
        made = self._get(name)
        assert isinstance(made, Gauge)  # noqa: S101 - as above
        return made.labels(**labels) if labels else made

    def histogram(self, name: str, **labels: str) -> Histogram:
        """Return the histogram of the table with these label values."""
        made = self._get(name)
        assert isinstance(made, Histogram)  # noqa: S101 - as above
        return made.labels(**labels) if labels else made

    def show(self, name: str, buckets: Buckets, **labels: str) -> None:
        """Show a histogram of the table that somebody else counts."""
        metric = METRICS[name]
        if name not in self._shown:
            self._shown[name] = _BucketsCollector(name, metric)
            self.registry.register(self._shown[name])
        self._shown[name].children[tuple(labels[label] for label in metric.labels)] = buckets

    def serve(self, host: str, port: int) -> None:
        """Answer `/metrics` on a port of its own, from a daemon thread."""
        start_http_server(port, addr=host, registry=self.registry)

    def _get(self, name: str) -> Counter | Gauge | Histogram:
        if name not in self._made:
            metric = METRICS[name]
            if metric.kind == "histogram":
                self._made[name] = Histogram(
                    name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                )
            else:
                kind = Counter if metric.kind == "counter" else Gauge
                self._made[name] = kind(name, metric.help, metric.labels, registry=self.registry)
        return self._made[name]
