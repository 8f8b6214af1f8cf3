"""The stamps of the broker's clock for clients, and the offsets of clients' clocks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

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


class _Bounds(NamedTuple):
    """The bounds of the time by which a client's clock is ahead, by one ping that was answered.

    A ping takes no time at least, and its round trip at most.
    """

    least_us: int
    most_us: int


class ClientClock:
    """The latency and the clock drift of one client, measured by its pings.

    A client tells the round trip of a ping with the next one. Until then the ping bounds the drift on one
    side: a delayed ping makes a clock look late, never early.
    """

    def __init__(self, bound_ms: int) -> None:
        self._bound_us = bound_ms * 1000
        self._round_trips_us: deque[int] = deque(maxlen=_KEPT)
        # By the moment of their sending, the time by which pings without a known round trip looked ahead.
        self._unmeasured: dict[int, int] = {}
        self._bounds: deque[_Bounds] = deque(maxlen=_PINGS_TO_JUDGE)
        self._ahead_us: deque[int] = deque(maxlen=_PINGS_TO_JUDGE)
        self.advance_ms = _SPARE_MS
        """How long before its due a message leaves."""

    def pinged(
        self,
        *,
        client_us: int,
        now_us: int,
        sent_us: int = 0,
        round_trip_us: int = 0,
        measured_us: int = 0,
    ) -> Drift:
        """A ping that was sent at `sent_us` tells the round trip of the one that was sent at `measured_us`.

        Clients that do not say which one it was mean the last, as a rule.
        """
        if round_trip_us > 0:
            self._measured(measured_us, min(round_trip_us, _LONGEST_TRIP_US))
        ahead_us = max(-_MOST_DRIFT_US, min(client_us - now_us, _MOST_DRIFT_US))
        self._ahead_us.append(ahead_us)
        self._unmeasured.pop(sent_us, None)
        self._unmeasured[sent_us] = ahead_us
        if len(self._unmeasured) > _KEPT:
            del self._unmeasured[next(iter(self._unmeasured))]
        return Drift(self.drift_us, self.drifting)

    def _measured(self, measured_us: int, round_trip_us: int) -> None:
        self._round_trips_us.append(round_trip_us)
        slowest_ms = -(-max(self._round_trips_us) // 2_000)
        self.advance_ms = min(slowest_ms + _SPARE_MS, _MOST_ADVANCE_MS)
        last_us = measured_us or next(reversed(self._unmeasured), 0)
        if (ahead_us := self._unmeasured.pop(last_us, None)) is not None:
            self._bounds.append(_Bounds(ahead_us, ahead_us + round_trip_us))

    @property
    def drift_us(self) -> int:
        """By the fastest of the last pings; by the bound on one side before a round trip is known."""
        if self._is_ahead or not self._bounds:
            return max(self._ahead_us, default=0)
        fastest = min(self._bounds, key=lambda each: each.most_us - each.least_us)
        return (fastest.least_us + fastest.most_us) // 2

    @property
    def drifting(self) -> bool:
        """Whether the clock is off by more than the bound, however long the pings travelled."""
        return self._is_ahead or self._is_behind

    @property
    def _is_ahead(self) -> bool:
        return max(self._ahead_us, default=0) > self._bound_us

    @property
    def _is_behind(self) -> bool:
        return max((each.most_us for each in self._bounds), default=0) < -self._bound_us

    @property
    def latency_us(self) -> int:
        """One way: half of the median of the last round trips."""
        if not self._round_trips_us:
            return 0
        return sorted(self._round_trips_us)[len(self._round_trips_us) // 2] // 2


def average_seconds(drifts_us: Iterable[int]) -> float:
    drifts = list(drifts_us)
    return sum(map(abs, drifts)) / len(drifts) / 1_000_000 if drifts else 0.0
