"""The clock at the edge: all inner code takes `now_ms` as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time in whole milliseconds since 1970, UTC, rounded down."""

    def now_ms(self) -> int: ...

    def seconds_until(self, moment_ms: int) -> float:
        """The seconds until a moment, to the fraction of a millisecond; 0 if it has passed."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms * 1_000_000 - time.time_ns()) / 1_000_000_000
