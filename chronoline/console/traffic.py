"""Traffic: messages a second and lateness of the last ten minutes, one sample a second.

Beside the lateness of messages stands that of the control, a task of the same event loop that only sleeps
until a moment and wakes: what the machine adds to everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chronoline.broker.context import BrokerContext
from chronoline.core.lateness import LatenessHistogram
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise

_KEPT = 600
_EVERY_S = 1.0
_CONTROL_EVERY_S = 0.1
_PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSample:
    """One second of a node."""

    at_ms: int
    received_per_s: float
    """Messages that producers created."""
    delivered_per_s: float
    """Messages that left for a consumer or a target."""
    lateness: LatenessHistogram
    """Of the first deliveries in this second."""
    control: LatenessHistogram

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at_ms,
            "in": round(self.received_per_s, 1),
            "out": round(self.delivered_per_s, 1),
            "late": {name: self.lateness.percentile_ms(part) for name, part in _PERCENTILES},
            "control": self.control.percentile_ms(0.99),
        }


class Traffic(AsyncService):
    """Samples of the last ten minutes, and a signal for those that follow them."""

    def __init__(self, parts: BrokerContext) -> None:
        self._parts = parts
        self._samples: deque[TrafficSample] = deque(maxlen=_KEPT)
        self._control = LatenessHistogram()
        self.control = LatenessHistogram()
        """The control since the start of the node."""
        self._next = asyncio.Event()
        self._cancels: list[Callable[[], object]] = []
        self.ended = False

    @property
    def samples(self) -> list[TrafficSample]:
        return list(self._samples)

    async def wait(self) -> TrafficSample | None:
        """The next sample; None when the node stops."""
        await self._next.wait()
        return None if self.ended else self._samples[-1]

    async def _start(self) -> None:
        failed = self._parts.metrics.failed
        for what, work in (("console: traffic", self._sample), ("console: control", self._sleep)):
            self._cancels.append(supervise(what, work, failed).cancel)

    async def _stop(self) -> None:
        self.end()
        for cancel in self._cancels:
            cancel()

    def end(self) -> None:
        """Ends all that wait. May be called twice."""
        self.ended = True
        self._next.set()

    async def _sample(self) -> None:
        before = self._parts.metrics.totals()
        before_s = time.monotonic()
        while True:
            await asyncio.sleep(_EVERY_S)
            totals, now_s = self._parts.metrics.totals(), time.monotonic()
            took_s = now_s - before_s
            control, self._control = self._control, LatenessHistogram()
            self._samples.append(
                TrafficSample(
                    at_ms=self._parts.clock.now_ms(),
                    received_per_s=(totals.created - before.created) / took_s,
                    delivered_per_s=(totals.delivered - before.delivered) / took_s,
                    lateness=totals.lateness.since(before.lateness),
                    control=control,
                )
            )
            before, before_s = totals, now_s
            self._next.set()
            self._next = asyncio.Event()

    async def _sleep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _CONTROL_EVERY_S
            await asyncio.sleep(_CONTROL_EVERY_S)
            late_ms = max(0.0, (loop.time() - due_s) * 1000)
            self._control.observe(late_ms)
            self.control.observe(late_ms)
