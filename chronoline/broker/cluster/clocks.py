"""The clocks of the cluster: our stamps, those of other brokers, and the coordination service's clock.

`peer_clocks` decides; this is its shell. Offsets beyond the bound are shown and stop nothing: the store's
clock is the judge of each broker (`trusted_clock`), and the coordination service counts durations alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from chronoline.broker.cluster.member import ClusterMember
from chronoline.broker.cluster.peer_clocks import OffsetRange, PeerClocks, PeerRoster
from chronoline.broker.degradation import Degradation, DegradationType
from chronoline.broker.metrics import Sample
from chronoline.coordination.contract import View
from chronoline.coordination.membership import CLOCKS, stamps_of
from chronoline.core.errors import CoordinationError
from chronoline.runtime.clock import Clock
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise

_STAMP_EVERY_S = 5.0
_GLANCE_EVERY_S = 1.0
"""The interval between two readings of the clock: the others must learn that it was moved."""
_MEASURE_EVERY_S = 60.0
_LAST_STAMP_S = 0.5
"""The longest wait of a stop until the others know that this broker leaves."""
_MOST_NAMES = 5


class ClusterClocks(AsyncService):
    """From `start` to `stop`. Owned by the event loop."""

    def __init__(
        self,
        member: ClusterMember,
        clock: Clock,
        *,
        bound_ms: int,
        stamp_every_s: float = _STAMP_EVERY_S,
        failed: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """`failed` counts failures of its tasks."""
        self._member = member
        self._clock = clock
        self._bound_ms = bound_ms
        self._stamp_every_s = stamp_every_s
        self._failed = failed
        self._peers = PeerClocks(member.name)
        self._roster = PeerRoster(member.name)
        self._service_ms: OffsetRange | None = None
        """The clock of the coordination service, relative to our monotonic clock."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def offsets(self) -> dict[str, OffsetRange]:
        """How far the clocks of the other brokers are ahead of ours, by name."""
        return self._peers.offsets(*self._now_ms())

    @property
    def service_offset(self) -> OffsetRange | None:
        """How far the clock of the coordination service is ahead of ours; None if that is unknown."""
        if self._service_ms is None:
            return None
        own_ms = self._peers.read(*self._now_ms())
        return OffsetRange(self._service_ms.low_ms - own_ms, self._service_ms.high_ms - own_ms)

    def samples(self) -> Iterator[Sample]:
        service = self.service_offset
        found = {
            "broker": list(self.offsets.values()),
            "sync": [] if service is None else [service],
        }
        for target, offsets in found.items():
            off = sum(1 for each in offsets if self._is_off(each))
            yield "broker_active_timedrifts_count", (target, ""), off
            sizes_ms = [abs(each.likely_ms) for each in offsets]
            mean_s = sum(sizes_ms) / len(sizes_ms) / 1000 if sizes_ms else 0.0
            yield "broker_active_timedrifts_seconds_avg", (target, ""), mean_s

    def degradations(self) -> Iterator[Degradation]:
        """Clocks beyond the bound, and brokers that vanished."""
        if words := self._drift():
            yield Degradation(
                DegradationType.DRIFT, words, "clocks of the cluster differ by more than the bound"
            )
        if names := self._roster.vanished(time.monotonic()):
            which = "one broker" if len(names) == 1 else f"{len(names)} brokers"
            public = f"{which} vanished within the last minute"
            yield Degradation(DegradationType.PEERS, f"{public}: {_listed(names)}", public)

    def _drift(self) -> str:
        """Which clocks are beyond the bound; empty if none is."""
        offsets = self.offsets
        off = {name: each for name, each in offsets.items() if self._is_off(each)}
        service = self.service_offset
        words = []
        if off:
            most = "most" if 2 * len(off) > len(offsets) else "some"
            shown = _listed([f"{name} by {_seconds(each)}" for name, each in sorted(off.items())])
            words.append(f"the clocks of {most} other brokers differ from this broker's: {shown}")
        if service is not None and self._is_off(service):
            words.append(
                f"the clock of the coordination service differs from this broker's by {_seconds(service)}"
            )
        return "; ".join(words)

    def _is_off(self, offset: OffsetRange) -> bool:
        return abs(offset.least_ms) > self._bound_ms

    def _now_ms(self) -> tuple[int, float]:
        return self._clock.now_ms(), time.monotonic_ns() / 1_000_000

    async def _start(self) -> None:
        works = {
            "watching clocks": self._watch,
            "stamping the clock": self._write,
            "measuring the clock of the coordination service": self._measure,
        }
        self._tasks = [supervise(name, work, self._failed) for name, work in works.items()]

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._tasks:
            return
        self._tasks = []
        stamp = self._peers.stamp(*self._now_ms())
        self._member.registration.show(type(stamp)(stamp.broker, stamp.wall_ms, leaving=True))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_STAMP_S):
                await self._member.registration.wait_written()

    async def _watch(self) -> None:
        async with self._member.coordination.watch(CLOCKS) as watch:
            async for view in watch:
                self._take_in(view)

    def _take_in(self, view: View) -> None:
        if not view.is_current:
            return  # not seeing peers is not their end
        stamps = stamps_of(view)
        for stamp in stamps.values():
            self._peers.received(stamp, *self._now_ms())
        self._peers.keep(stamps)
        self._roster.seen(stamps.values(), time.monotonic())

    async def _write(self) -> None:
        epoch, stamp_at_s = -1, 0.0
        while True:
            now_s = time.monotonic()
            self._peers.read(*self._now_ms())
            self._roster.forget(now_s)
            if now_s >= stamp_at_s or self._peers.epoch != epoch:
                epoch, stamp_at_s = self._peers.epoch, now_s + self._stamp_every_s
                self._member.registration.show(self._peers.stamp(*self._now_ms()))
            # A clock has no event for being moved.
            await asyncio.sleep(min(_GLANCE_EVERY_S, self._stamp_every_s))

    async def _measure(self) -> None:
        while True:
            try:
                measured = await self._member.coordination.clock_offset()
            except CoordinationError:
                measured = None
            if measured is not None:
                # It is measured beside the machine's clock.
                machine_ms = (time.time_ns() - time.monotonic_ns()) / 1_000_000
                low_ms = machine_ms + measured.ahead_ms - measured.error_ms
                self._service_ms = OffsetRange(low_ms, low_ms + 2 * measured.error_ms)
            await asyncio.sleep(_MEASURE_EVERY_S)


def _seconds(offset: OffsetRange) -> str:
    return f"{offset.likely_ms / 1000:+.1f} s"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
