"""The offset of another clock from this process's, and a warning past a bound.

Messages are never early by the clock of the process that fires them. If clocks differ, a message is early or
late by another clock, and leases end earlier or later than their holders expect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

_WARN_EVERY_S = 60.0

ReadClock = Callable[[], int | None]
"""Returns the time of another clock in milliseconds; None if there is no such clock."""


class ClockOffset:
    """Measures one clock, and warns past a bound, at most once a minute."""

    def __init__(self, whose: str, read: ReadClock, *, bound_ms: int) -> None:
        self._whose = whose
        self._read = read
        self._bound_ms = bound_ms
        self._warn_at_s = 0.0
        self.bad = False
        """Whether the last measurement was past the bound."""

    def measure(self) -> int:
        """Returns the milliseconds by which the clock is ahead.

        The result assumes that the clock was read half-way through the call. It may be wrong by half of the
        call's duration, which therefore does not count against the bound.
        """
        before_ns = time.time_ns()
        theirs_ms = self._read()
        after_ns = time.time_ns()
        self.bad = False
        if theirs_ms is None:
            return 0
        offset_ms = round(theirs_ms - (before_ns + after_ns) / 2_000_000)
        self.bad = abs(offset_ms) - (after_ns - before_ns) / 2_000_000 > self._bound_ms
        if self.bad and time.monotonic() >= self._warn_at_s:
            self._warn_at_s = time.monotonic() + _WARN_EVERY_S
            logger.warning("%s", self.words(offset_ms))
        return offset_ms

    def words(self, offset_ms: int) -> str:
        return (
            f"the clock of {self._whose} is {offset_ms:+} ms off this process's, more than clock_bound_ms "
            f"({self._bound_ms}): set the clocks of both machines"
        )
