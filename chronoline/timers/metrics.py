"""The metrics of a node of the timer service.

They are counters of `prometheus_client` itself, with its exposition: names that end in `_total`, and
`_created` samples. Broker and pipe make families at each scrape (`runtime.metrics`), because the names of
their counters end otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from chronoline.runtime.metrics import LATENESS_BOUNDS_S, Watched


class TimersMetrics:
    """The counts of one node."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        """`labels` are added to all metrics."""
        self.registry = CollectorRegistry()
        self._labelled = CollectorRegistry()
        self._labelled.register(_Labelled(self.registry, labels or {}))
        self._pops = Counter(
            "chronoline_timers_pops", "Pops that were begun, each attempt.", registry=self.registry
        )
        self._lateness = Histogram(
            "chronoline_timers_lateness_seconds",
            "The time from the due time of a pop to the start of its first attempt.",
            buckets=LATENESS_BOUNDS_S,
            registry=self.registry,
        )
        self._callbacks = Counter(
            "chronoline_timers_callbacks",
            "Callbacks by outcome: succeeded, answered_badly, redirected, timed_out, unreachable, "
            "not_allowed, unknown_host, failed.",
            ["outcome"],
            registry=self.registry,
        )
        self._given_up = Counter(
            "chronoline_timers_given_up",
            "Pops whose callback failed at all attempts.",
            registry=self.registry,
        )
        self._missed = Counter(
            "chronoline_timers_missed",
            "Pops that were not called because it was too late.",
            registry=self.registry,
        )
        self._requests = Counter(
            "chronoline_timers_requests",
            "Requests of clients.",
            ["method", "status"],
            registry=self.registry,
        )
        self._refused = Counter(
            "chronoline_timers_refused",
            "Requests that were refused before any work: not_admitted (a token, the host), node_busy, "
            "connections.",
            ["reason"],
            registry=self.registry,
        )
        # Looked up once: there are few of each.
        self._outcome = cache(self._callbacks.labels)
        self._request = cache(self._requests.labels)
        self._moved = Counter(
            "chronoline_timers_resync_offers",
            "Timers that other nodes offered to a resync.",
            registry=self.registry,
        )
        self._refused_records = Counter(
            "chronoline_timers_refused_records",
            "Records of other nodes that were refused: unreadable, or too far ahead of the clock.",
            registry=self.registry,
        )
        self._set_aside = Counter(
            "chronoline_timers_set_aside",
            "Timers that raised an error: the node calls them no more until they are changed.",
            registry=self.registry,
        )

    def set_aside(self) -> None:
        self._set_aside.inc()

    def refused_records(self, records: int) -> None:
        self._refused_records.inc(records)

    def popped(self, late_ms: int, *, is_first: bool) -> None:
        self._pops.inc()
        if is_first:
            self._lateness.observe(max(0, late_ms) / 1000)

    def called(self, outcome: str) -> None:
        self._outcome(outcome).inc()

    def given_up(self) -> None:
        self._given_up.inc()

    def missed(self, pops: int) -> None:
        self._missed.inc(pops)

    def asked(self, method: str, status: int) -> None:
        self._request(method, str(status)).inc()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def offered(self, timers: int) -> None:
        self._moved.inc(timers)

    def watch(self, gauges: Callable[[], Iterable[Metric]]) -> None:
        """Calls `gauges` at each scrape."""
        self.registry.register(Watched(gauges))

    def snapshot(self) -> Callable[[], bytes]:
        """Collects the figures now; the returned function makes text of them, in any thread."""
        collected = list(self._labelled.collect())
        return lambda: generate_latest(Watched(lambda: collected))

    def text(self) -> bytes:
        """In the format of Prometheus."""
        return self.snapshot()()


class _Labelled(Collector):
    """The metrics of a registry, with further labels."""

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str]) -> None:
        self._registry = registry
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **self._labels})
                for sample in metric.samples
            ]
            yield metric
