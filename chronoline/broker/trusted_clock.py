"""Whether our clock can be gone by: while it is too far from the store's, nothing of it is written.

Brokers that share a store go by their own clocks. The store's clock is the one that all of them see, so each
compares its own with it every few seconds. In between the clock that only counts carries the comparison on:
a wall clock that is moved is noticed when it is read next, and not when the store is asked next.

Past the bound a broker does less, until its clock is right again: no reservations, no pushes, no purge, no
change that would write the time. What writes takes its time from `TrustedClock`, which does not tell it then;
what acts by the time alone, as pushing does, asks for its `problem`. Looks go on.

A store without a clock of its own (one machine, one clock) says nothing: whatever our clock shows is right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chronoline.broker.clock_offsets import Timekeeper
from chronoline.core.errors import BrokerUnavailable, ChronolineError
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)

_COMPARE_EVERY_S = 2.0
_COMPARE_WHEN_OFF_S = 0.5
_GLANCE_EVERY_S = 0.2
"""So often our own clock is looked at: who sleeps until a moment has to hear that the clock was moved."""
_TRY_AGAIN_MS = 500


@dataclass(frozen=True, slots=True)
class _Compared:
    """The store's clock, beside the one that only counts."""

    offset_us: int
    error_us: int
    """By so much it may be wrong, and that is no clock's fault: half of the way there and back."""


class TrustedClock:
    """Our clock, which does not tell the time while it is too far from the store's.

    It may be read in any thread. Until it was compared for the first time it is taken for right.
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
            error = BrokerUnavailable(f"{problem}; nothing was changed. Try again, or elsewhere")
            error.retry_after_ms = _TRY_AGAIN_MS
            raise error
        return now_ms

    def seconds_until(self, moment_ms: int) -> float:
        return self._clock.seconds_until(moment_ms)

    @property
    def problem(self) -> str:
        """Why our clock cannot be gone by; empty while it can."""
        return self._problem(self._clock.now_ms())

    @property
    def ahead_ms(self) -> int | None:
        """How far it is ahead of the store's; None if that is not known."""
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
        """Asks the store for its clock, and waits for the answer."""
        asked_us = self._monotonic_us()
        theirs_ms = store.clock_ms()
        half_us = (self._monotonic_us() - asked_us) // 2
        before, self._not_compared = self._compared, ""
        if theirs_ms is None:
            self.alone = True
        elif before is None or half_us <= max(self._bound_us, before.error_us):
            # An answer that took longer says less than the one before, which the counting carries on.
            self._compared = _Compared(theirs_ms * 1000 - asked_us - half_us, half_us)

    def not_compared(self, reason: str) -> None:
        """The store did not answer. What is known of its clock stays; if nothing is, ours is not trusted."""
        if self._compared is None and not self.alone:
            self._not_compared = f"this broker's clock was not compared with the store's: {reason}"


async def compare_clocks(clock: TrustedClock, ask: Callable[[], Awaitable[None]]) -> None:
    """`ask` has the clocks compared, where that may wait."""
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
    """Compares every few seconds, and when our clock was moved; then, and when trust changes, it says so."""
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
            _tell(clock, was_off=known[1])
            known = seen
            changed()
        await asyncio.sleep(_GLANCE_EVERY_S)  # a clock that is moved tells nobody


def _tell(clock: TrustedClock, *, was_off: bool) -> None:
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
