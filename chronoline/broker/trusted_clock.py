"""The broker's clock, and whether it agrees with the store's.

Brokers that share a store use their own clocks. All of them see the store's clock, so each compares its own
with it every few seconds. In between the monotonic clock carries the comparison on: a broker notices a moved
wall clock at the next reading, and not at the next comparison.

While its clock is off by more than the bound, a broker makes no reservation, no push, no purge and no change
that would write the time. Writers take the time from `TrustedClock`, which then raises; parts that act by the
time alone, such as pushing, check its `problem`. Reads continue.

A store without a clock of its own is on the broker's machine: there the broker's clock is always right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chronoline.broker.client_clocks import Timekeeper, machine_us
from chronoline.core.errors import BrokerUnavailable, ChronolineError
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)

_COMPARE_EVERY_S = 2.0
_COMPARE_WHEN_OFF_S = 0.5
_GLANCE_EVERY_S = 0.2
"""The interval between two readings of the clock: sleepers must learn that it was moved."""
_TRY_AGAIN_MS = 500


@dataclass(frozen=True, slots=True)
class _Compared:
    """The store's clock, relative to the monotonic one."""

    offset_us: int
    error_us: int
    """The largest error of the offset: half of the round trip."""


class StoreClock:
    """The store's clock, carried on by the monotonic one; the machine's until the first comparison.

    It follows the store no further than an answer is precise, so it does not tremble with the round trips.
    """

    def __init__(
        self, monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000
    ) -> None:
        self._monotonic_us = monotonic_us
        self._offset_us = machine_us() - monotonic_us()

    def now_ms(self) -> int:
        return (self._monotonic_us() + self._offset_us) // 1000

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms * 1000 - self._monotonic_us() - self._offset_us) / 1_000_000

    def follow(self, compared: _Compared) -> None:
        """Takes the nearest offset that an answer of the store allows."""
        low_us, high_us = (
            compared.offset_us - compared.error_us,
            compared.offset_us + compared.error_us,
        )
        self._offset_us = min(max(self._offset_us, low_us), high_us)


class TrustedClock:
    """The broker's clock, which raises while it is too far from the store's.

    Any thread may read it. Before the first comparison it is trusted.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        bound_ms: int = CLOCK_BOUND_MS,
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._clock = clock
        self._bound_us = bound_ms * 1000
        self._monotonic_us = monotonic_us
        self._compared: _Compared | None = None
        self._not_compared = ""
        self.alone = False
        """The store has no clock of its own."""

    def now_ms(self) -> int:
        """Raises `BrokerUnavailable`: nothing was changed."""
        now_ms = self._clock.now_ms()
        problem = self._problem(now_ms)
        if problem:
            error = BrokerUnavailable(
                f"{problem}; nothing was changed. Try again, or use another broker"
            )
            error.retry_after_ms = _TRY_AGAIN_MS
            raise error
        return now_ms

    def seconds_until(self, moment_ms: int) -> float:
        return self._clock.seconds_until(moment_ms)

    @property
    def problem(self) -> str:
        """Why the clock is not trusted; empty while it is."""
        return self._problem(self._clock.now_ms())

    @property
    def ahead_ms(self) -> int | None:
        """How far it is ahead of the store's clock; None if that is unknown."""
        compared = self._compared
        if compared is None:
            return None
        return round(self._ahead_us(self._clock.now_ms(), compared) / 1000)

    def _ahead_us(self, now_ms: int, compared: _Compared) -> int:
        return now_ms * 1000 - self._monotonic_us() - compared.offset_us

    def _problem(self, now_ms: int) -> str:
        compared = self._compared
        if compared is None:
            return self._not_compared
        ahead_us = self._ahead_us(now_ms, compared)
        if abs(ahead_us) - compared.error_us <= self._bound_us:
            return ""
        return (
            f"this broker's clock is {abs(ahead_us) / 1_000_000:.1f} s "
            f"{'ahead of' if ahead_us > 0 else 'behind'} the store's, more than clock_bound_ms "
            f"({self._bound_us // 1000})"
        )

    def compare(self, store: Store) -> None:
        """Asks the store for its clock. This blocks."""
        asked_us = self._monotonic_us()
        theirs_ms = store.clock_ms()
        half_us = (self._monotonic_us() - asked_us) // 2
        if store.traffic is not None:
            store.traffic.answered(2 * half_us / 1_000_000)
        before, self._not_compared = self._compared, ""
        if theirs_ms is None:
            self.alone = True
        elif before is None or half_us <= max(self._bound_us, before.error_us):
            # A slower answer is less precise than the one before.
            self._compared = _Compared(theirs_ms * 1000 - asked_us - half_us, half_us)
            if isinstance(self._clock, StoreClock):
                self._clock.follow(self._compared)

    def not_compared(self, reason: str) -> None:
        """The store did not answer. Without an earlier comparison the clock is not trusted."""
        if self._compared is None and not self.alone:
            self._not_compared = f"this broker's clock was not compared with the store's: {reason}"


async def compare_clocks(clock: TrustedClock, ask: Callable[[], Awaitable[None]]) -> None:
    """Compares the clocks by `ask`, and notes a failure."""
    if clock.alone:
        return
    try:
        await ask()
    except ChronolineError as error:
        clock.not_compared(str(error))


async def watch_clock(
    clock: TrustedClock,
    timekeeper: Timekeeper,
    *,
    ask: Callable[[], Awaitable[None]],
    changed: Callable[[], None],
) -> None:
    """Compares every few seconds and after a jump of the clock; calls `changed` after a change."""
    known = (timekeeper.stamp()[1], bool(clock.problem))
    compare_at_s = 0.0
    while True:
        seen = (timekeeper.stamp()[1], bool(clock.problem))
        if seen != known or time.monotonic() >= compare_at_s:
            await compare_clocks(clock, ask)
            seen = (timekeeper.stamp()[1], bool(clock.problem))
            wait_s = _COMPARE_WHEN_OFF_S if seen[1] else _COMPARE_EVERY_S
            compare_at_s = time.monotonic() + wait_s
        if seen != known:
            _log_change(clock, was_off=known[1])
            known = seen
            changed()
        await asyncio.sleep(_GLANCE_EVERY_S)  # a clock has no event for being moved


def _log_change(clock: TrustedClock, *, was_off: bool) -> None:
    problem = clock.problem
    if problem and not was_off:
        logger.error(
            "%s: nothing is leased, pushed, purged or changed until it is set right",
            problem,
            extra={"action": "clock_off"},
        )
    elif was_off and not problem:
        logger.warning("this broker's clock is right again", extra={"action": "clock_right"})
    elif not problem:
        logger.warning("this machine's clock was moved", extra={"action": "clock_moved"})
