"""A pipe's metrics for Prometheus: what its process counted, and what its store says when it is asked."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from chronoline.core.closing import Closing
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.pipe.counters import Counters
from chronoline.pipe.status import PipeStatus

logger = logging.getLogger(__name__)

_COUNT_EVERY_S = 10.0

_COUNTED = {
    "fired": "Messages that were published and acknowledged.",
    "redelivered": "Those among them whose earlier reservation had lapsed.",
    "served": "Windows that a lane served on time, with all of its tasks.",
    "skipped": "Windows to which not all tasks came in time, or during which the store was away.",
    "relayed": "Dead letters that were moved to their topic.",
    "restarts": "Queries that failed and were started again.",
}


class PipeCollector(Collector):
    """Asked at each scrape. If the store cannot be asked, what the process counted is there all the same."""

    def __init__(
        self, pipe: str, node: str, counters: Counters, status: Callable[[], PipeStatus]
    ) -> None:
        self._labels = {"pipe": pipe, "node": node}
        self._counters = counters
        self._status = status
        self._known: PipeStatus | None = None
        self._count_at_s = 0.0
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        yield from self._own()
        try:
            yield from self._shared(self._recent_status())
        except ChronolineError as error:
            logger.warning("the metrics of the store are missing: %s", error)

    def _recent_status(self) -> PipeStatus:
        """Counting costs the store something: scrapes that come close together share one count."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._count_at_s:
                self._known = self._status()
                self._count_at_s = time.monotonic() + _COUNT_EVERY_S
            return self._known

    def _own(self) -> Iterator[Metric]:
        names, values = list(self._labels), list(self._labels.values())
        for name, help_text in _COUNTED.items():
            family = CounterMetricFamily(f"chronoline_pipe_{name}", help_text, labels=names)
            family.add_metric(values, getattr(self._counters, name))
            yield family
        offset = GaugeMetricFamily(
            "chronoline_pipe_clock_offset_seconds",
            "By how much another's clock is ahead of this process's.",
            labels=[*names, "clock"],
        )
        offset.add_metric([*values, "store"], self._counters.clock_offset_ms / 1000)
        offset.add_metric([*values, "kafka"], self._counters.kafka_clock_offset_ms / 1000)
        yield offset
        late = HistogramMetricFamily(
            "chronoline_lateness_seconds", "Lateness of first deliveries.", labels=names
        )
        lateness = self._counters.lateness.copy()  # another thread adds to it
        late.add_metric(values, lateness.cumulative(), sum_value=lateness.sum_ms / 1000)
        yield late

    def _shared(self, status: PipeStatus) -> Iterator[Metric]:
        """What belongs to the pipe as a whole: every process of it says the same."""
        gauges = {
            "waiting": ("Messages that wait for their due time.", status.on_timeline.waiting),
            "ready": ("Messages that a lane has reserved.", status.on_timeline.processing),
            "overdue": ("Messages that are due and nobody has.", status.on_timeline.available),
            "dead_letters": ("Dead letters in the store.", status.dead_letters),
        }
        if status.lag is not None:
            gauges["input_lag"] = ("Records of the input that wait to be taken in.", status.lag)
        for name, (help_text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"chronoline_pipe_{name}", help_text, labels=["pipe"])
            gauge.add_metric([status.name], value)
            yield gauge
        records = CounterMetricFamily(
            "chronoline_pipe_records",
            "Records of the input, by what became of them.",
            labels=["pipe", "outcome"],
        )
        for outcome, count in status.tally.by_name().items():
            records.add_metric([status.name, outcome], count)
        yield records


class MetricsServer(Closing):
    """Serves a collector at an address until it is closed."""

    def __init__(self, host: str, port: int, collector: Collector) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InvalidInput(
                f"metrics cannot be served at {host}:{port}: {error}; choose another port"
            ) from error
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        with self._lock:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
