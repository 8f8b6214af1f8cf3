"""The metrics of a pipe: the counts of its process, and the figures of its store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from chronoline.core.errors import ChronolineError
from chronoline.pipe.counters import Counters
from chronoline.pipe.status import PipeStatus
from chronoline.runtime.metrics import counter, gauge, lateness_family

logger = logging.getLogger(__name__)

_COUNT_EVERY_S = 10.0

_COUNTED = {
    "fired": "Messages that were published and acknowledged.",
    "redelivered": "Fired messages whose earlier reservation had lapsed.",
    "served": "Windows that tasks served in every piece of the pipe's buckets.",
    "skipped": "Windows that no task served in a piece, or during which the store was unreachable.",
    "relayed": "Dead letters that were moved to their topic.",
    "restarts": "Queries that failed and were started again.",
}


class PipeCollector(Collector):
    """Collects the metrics of one pipe. Without the store, it still collects those of the process."""

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
        """Scrapes that come close together share one count, which costs the store some work."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._count_at_s:
                self._known = self._status()
                self._count_at_s = time.monotonic() + _COUNT_EVERY_S
            return self._known

    def _own(self) -> Iterator[Metric]:
        names, values = list(self._labels), list(self._labels.values())
        for name, help_text in _COUNTED.items():
            counted = getattr(self._counters, name)
            yield counter(f"chronoline_pipe_{name}", help_text, [(values, counted)], *names)
        yield gauge(
            "chronoline_pipe_clock_offset_seconds",
            "The time by which the store's clock is ahead of this process's.",
            [([*values, "store"], self._counters.clock_offset_ms / 1000)],
            *names,
            "clock",
        )
        lateness = self._counters.lateness.copy()  # another thread adds to it
        yield lateness_family(
            "Lateness of first deliveries, until the output acknowledged.",
            [(values, lateness)],
            *names,
        )

    def _shared(self, status: PipeStatus) -> Iterator[Metric]:
        """The figures of the whole pipe, which are the same in each of its processes."""
        gauges = {
            "waiting": ("Messages that wait for their due time.", status.on_timeline.waiting),
            "ready": ("Messages that a lane has reserved.", status.on_timeline.processing),
            "overdue": ("Messages that are due and not reserved.", status.on_timeline.available),
            "dead_letters": ("Dead letters in the store.", status.dead_letters),
        }
        if status.lag is not None:
            gauges["input_lag"] = ("Records of the input that wait to be taken in.", status.lag)
        for name, (help_text, value) in gauges.items():
            yield gauge(f"chronoline_pipe_{name}", help_text, [([status.name], value)], "pipe")
        yield counter(
            "chronoline_pipe_records",
            "Records of the input, by outcome.",
            [([status.name, outcome], count) for outcome, count in status.tally.by_name().items()],
            "pipe",
            "outcome",
        )
