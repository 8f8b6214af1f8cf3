"""The stamps of the broker's clock for clients, and the offsets of clients' clocks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chronoline.runtime.clock import Clock, SystemClock

_FORWARD_US = 500_000
"""The clock was moved if it is this far ahead of the monotonic clock. A smaller step is followed: earlier
stamps stay true."""
_BACK_US = 2_000
"""The clock was moved if it is this far behind: clients with older stamps are ahead of it. A smaller step is
the error of reading, since some clocks have milliseconds only."""
_READINGS = 3
_KEPT = 16
_LONGEST_TRIP_US = 60_000_000
_MOST_DRIFT_US = 1 << 62
"""The bound for a ping with an invalid time."""
_PINGS_TO_JUDGE = 3
"""Pings in a row that must agree that a clock is off."""
_MOST_ADVANCE_MS = 250
"""The longest travel time on earth; slower pings were delayed."""
_SPARE_MS = 10
"""Added to the slowest of the last pings: a push can wait behind others."""


def machine_us() -> int:
    return time.time_ns() // 1000


def wall_us_of(clock: Clock) -> Callable[[], int]:
    """A clock in microseconds; any but the machine's has milliseconds only."""
    if type(clock) is SystemClock:
        return machine_us
    return lambda: clock.now_ms() * 1000


class Timekeeper:
    """Stamps for frames: the time, and the epoch of the clock.

    A moved clock begins a new epoch, for which earlier stamps are invalid. If the moved clock is not trusted,
    stamps continue as if it had not been moved.
    """

    def __init__(
        self,
        wall_us: Callable[[], int] = machine_us,
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        *,
        is_trusted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_trusted` says whether a clock that was moved is trusted."""
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._is_trusted = is_trusted
        # The greatest stamp of this epoch, which clients use.
        self._offset_us = self._measured_us()
        self.epoch = 0

    def stamp(self) -> tuple[int, int]:
        """Now in microseconds, and the epoch."""
        now_us, offset_us = self._read_us()
        if abs(offset_us - self._offset_us) <= _BACK_US:
            return now_us, self.epoch
        offset_us = self._measured_us()
        if -_BACK_US <= offset_us - self._offset_us <= _FORWARD_US:
            self._offset_us = max(self._offset_us, offset_us)
        elif not self._is_trusted():
            return self._monotonic_us() + self._offset_us, self.epoch
        else:
            self.epoch += 1
            self._offset_us = offset_us
        return self._wall_us(), self.epoch

    def _read_us(self) -> tuple[int, int]:
        """Now, and its offset from the monotonic clock.

        The monotonic clock is read first: an interruption between the two makes the offset too large, never
        too small.
        """
        counted_us = self._monotonic_us()
        now_us = self._wall_us()
        return now_us, now_us - counted_us

    def _measured_us(self) -> int:
        """The offset, with the least interruption."""
        return min(self._read_us()[1] for _ in range(_READINGS))


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a client's clock is ahead of the broker's."""

    drift_us: int
    drifting: bool


class ClientClock:
    """The latency and the clock drift of one client, measured by its pings."""

    def __init__(self, bound_ms: int) -> None:
        self._bound_us = bound_ms * 1000
        self._round_trips_us: deque[int] = deque(maxlen=_KEPT)
        self._drifts_us: deque[int] = deque(maxlen=_PINGS_TO_JUDGE)
        self.drift_us = 0

    def pinged(self, *, client_us: int, round_trip_us: int, now_us: int) -> Drift:
        if round_trip_us > 0:
            self._round_trips_us.append(min(round_trip_us, _LONGEST_TRIP_US))
        drift_us = client_us + self.latency_us - now_us
        self._drifts_us.append(max(-_MOST_DRIFT_US, min(drift_us, _MOST_DRIFT_US)))
        # A delayed ping makes a clock look late, never early.
        self.drift_us = max(self._drifts_us)
        return Drift(self.drift_us, self.drifting)

    @property
    def drifting(self) -> bool:
        return abs(self.drift_us) > self._bound_us

    @property
    def latency_us(self) -> int:
        """One way: half of the median of the last round trips."""
        if not self._round_trips_us:
            return 0
        return sorted(self._round_trips_us)[len(self._round_trips_us) // 2] // 2

    @property
    def advance_ms(self) -> int:
        """How long before its due a message leaves."""
        slowest_us = max(self._round_trips_us, default=0) // 2
        return min(-(-slowest_us // 1000) + _SPARE_MS, _MOST_ADVANCE_MS)


def average_seconds(drifts_us: Iterable[int]) -> float:
    drifts = list(drifts_us)
    return sum(map(abs, drifts)) / len(drifts) / 1_000_000 if drifts else 0.0
