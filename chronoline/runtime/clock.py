"""The clock at the edge: all inner code takes `now_ms` as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from chronoline.core.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Clock(Protocol):
    """The time in whole milliseconds since 1970, UTC, rounded down."""

    def now_ms(self) -> int: ...

    def seconds_until(self, moment_ms: int) -> float:
        """The seconds until a moment, to the fraction of a millisecond; 0 if it has passed."""
        ...


def to_ms(moment: datetime, what: str = "the moment") -> int:
    """A moment as whole milliseconds since 1970, UTC, fractions rounded up. It must have a zone."""
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{what} must be a datetime with its zone, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise InvalidInput(f"{what} {moment} has no time zone: add one, such as datetime.UTC")
    return -((_EPOCH - moment) // _MS)


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms * 1_000_000 - time.time_ns()) / 1_000_000_000
