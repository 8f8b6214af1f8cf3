"""The clock at the edge: everything inside takes `now_ms` as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in whole milliseconds since 1970, UTC, rounded down."""

    def now_ms(self) -> int: ...

    def seconds_until(self, moment_ms: int) -> float:
        """How long to sleep until a moment, to the fraction of a millisecond; 0 if it is over."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms * 1_000_000 - time.time_ns()) / 1_000_000_000
