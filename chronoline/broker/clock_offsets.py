"""The broker's clock as clients hear of it, and how far the clocks of others are off."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chronoline.runtime.clock import Clock, SystemClock

_FORWARD_US = 500_000
"""The clock was moved if it is so much further than a clock that only counts would have it. Less is followed:
stamps from before are still true."""
_BACK_US = 2_000
"""The clock was moved if it is so much less far: who goes by older stamps is ahead of it. Less is how exactly
clocks are read, of which some tell milliseconds."""
_READINGS = 3
_KEPT = 16
_LONGEST_TRIP_US = 60_000_000
_MOST_DRIFT_US = 1 << 62
"""A ping with a time that makes no sense says at most so much."""
_PINGS_TO_JUDGE = 3
"""A clock is off if so many pings in a row say so."""
_MOST_ADVANCE_MS = 250
"""Nobody on earth is farther away; whose pings take longer is stuck."""
_SPARE_MS = 10
"""A push leaves so much earlier than the slowest of the last pings would have it: it waits behind others."""


def machine_us() -> int:
    return time.time_ns() // 1000


def wall_us_of(clock: Clock) -> Callable[[], int]:
    """The machine's clock tells microseconds, any other one milliseconds."""
    if type(clock) is SystemClock:
        return machine_us
    return lambda: clock.now_ms() * 1000


class Timekeeper:
    """Stamps: when something left, and which count of the clock that was.

    A clock that was moved is another clock: stamps from before say nothing of it. If it cannot be gone by
    where it is now, stamps are counted on from where it was, as if it had not been moved.
    """

    def __init__(
        self,
        wall_us: Callable[[], int] = machine_us,
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        *,
        is_trusted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_trusted` is asked whether a clock that was moved can be gone by."""
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._is_trusted = is_trusted
        # The greatest that stamps of this epoch had: clients go by that.
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
        """Now, and how far that is from the clock that only counts.

        That one is read first: who is interrupted between the two finds too much, never too little.
        """
        counted_us = self._monotonic_us()
        now_us = self._wall_us()
        return now_us, now_us - counted_us

    def _measured_us(self) -> int:
        """How far it is, when hardly anything came between."""
        return min(self._read_us()[1] for _ in range(_READINGS))


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a client's clock is ahead of ours."""

    drift_us: int
    drifting: bool


class Measured:
    """What the pings of one client tell: how long it takes to reach it, and how far its clock is off."""

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
        # A ping that was held up on its way makes a clock look late, never early.
        self.drift_us = max(self._drifts_us)
        return Drift(self.drift_us, self.drifting)

    @property
    def drifting(self) -> bool:
        return abs(self.drift_us) > self._bound_us

    @property
    def latency_us(self) -> int:
        """One way: half of the middle one of the last round trips."""
        if not self._round_trips_us:
            return 0
        return sorted(self._round_trips_us)[len(self._round_trips_us) // 2] // 2

    @property
    def advance_ms(self) -> int:
        """How much before its due a message has to leave."""
        slowest_us = max(self._round_trips_us, default=0) // 2
        return min(-(-slowest_us // 1000) + _SPARE_MS, _MOST_ADVANCE_MS)


def average_seconds(drifts_us: Iterable[int]) -> float:
    drifts = list(drifts_us)
    return sum(map(abs, drifts)) / len(drifts) / 1_000_000 if drifts else 0.0
