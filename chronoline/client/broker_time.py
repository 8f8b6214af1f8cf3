"""The broker's time, estimated by a client so that it is never ahead of it."""

from __future__ import annotations

import time
from collections.abc import Callable

_GENERATION_US = 5_000_000


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class BrokerTime:
    """A lower bound of the broker's clock.

    A stamp was true when it left, so the broker's clock is at least the stamp plus the time since it arrived.
    The stamp that travelled fastest gives the best bound. Old ones are forgotten, since two clocks never run
    at exactly the same speed, and all of them when the broker's clock was moved.
    """

    def __init__(self, monotonic: Callable[[], int] = monotonic_us) -> None:
        self._monotonic = monotonic
        self._epoch: int | None = None
        self._offset_us: int | None = None  # broker's time minus ours, of this generation
        self._before_us: int | None = None  # of the previous one
        self._began_us = 0
        self._forgotten = False

    def heard(self, now_us: int, epoch: int) -> None:
        """Notes a stamp that arrived just now."""
        here_us = self._monotonic()
        if epoch != self._epoch or self._forgotten:
            self._epoch, self._offset_us, self._before_us = epoch, None, None
            self._began_us = here_us
        elif here_us - self._began_us > _GENERATION_US:
            self._before_us, self._offset_us = self._offset_us, None
            self._began_us = here_us
        self._forgotten = False
        offset_us = now_us - here_us
        self._offset_us = max(offset_us, self._offset_us or offset_us)

    def forget(self) -> None:
        """The next stamp may come from another broker. Until then, the old ones are the best estimate."""
        self._forgotten = True

    def now_us(self) -> int:
        """The broker's time in microseconds; before the first stamp, our own clock."""
        if self._offset_us is None:
            return time.time_ns() // 1000
        return self._monotonic() + max(self._offset_us, self._before_us or self._offset_us)

    def seconds_until(self, moment_ms: int) -> float:
        """The seconds until a moment; 0 if it has passed."""
        return max(0, moment_ms * 1000 - self.now_us()) / 1_000_000
