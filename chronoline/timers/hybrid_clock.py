"""A hybrid logical clock: numbers for versions that follow the wall clock and never go back.

A number is a wall-clock millisecond with ten bits of a counter behind it. The next number is higher than all
that the node has given or seen, and not lower than the wall clock. A change that is made later than another
one by more than the two nodes' clocks differ therefore has the higher number, even if the node that makes it
has never heard of the other change. Numbers of a counter without a clock, which earlier releases gave, are
lower than all of these.

Bounds. The clock ignores a number that is more than `bound_ms` ahead of the wall clock: one node with a wrong
clock, or one wrong record, must not carry the others along. Numbers stay below 2**53, which every reader of
JSON can hold, until the year 2248.
"""

from __future__ import annotations

from chronoline.core.errors import InvalidInput
from chronoline.timers.timer import MOST_NUMBER, Version

COUNTER_BITS = 10
DEFAULT_BOUND_MS = 60_000
_LATEST_MS = (1 << 43) - 1
_DAY_MS = 24 * 3_600_000


class HybridClock:
    """The versions that one node gives. Time is an argument."""

    def __init__(self, giver: str, *, bound_ms: int = DEFAULT_BOUND_MS) -> None:
        """`giver` names the node and the life of its journal: no other clock uses this name."""
        self._giver = giver
        self._bound_ms = bound_ms
        self._given = 0
        self._seen = 0
        # How often the wall clock was set back beyond the bound, after which numbers are given a second time.
        self._set_back = 0

    def next(self, wall_ms: int, *, above: int = 0) -> Version:
        """A version above all that were given or seen within the bound, and always above `number`."""
        if above >= MOST_NUMBER:
            raise InvalidInput("the timer has the highest version that there is: delete its record")
        limit = self.limit(wall_ms)
        if self._given > limit:
            self._given = 0
            self._set_back += 1
        if self._seen > limit:
            self._seen = 0
        number = max(_at(wall_ms), self._given + 1, self._seen + 1)
        if above < number:
            self._given = number
        else:
            # A timer whose version is far ahead keeps its own count, and carries no other along.
            number = above + 1
            if number <= limit:
                self._given = number
        giver = f"{self._giver}/{self._set_back}" if self._set_back else self._giver
        return Version(number, giver)

    def saw(self, version: Version) -> None:
        """Notes a version of another node: the next one here is higher, if it is within the bound."""
        self._seen = max(self._seen, version.number)

    def limit(self, wall_ms: int) -> int:
        """The highest number that is within the bound."""
        return _at(wall_ms + self._bound_ms)

    def problem(self, number: int, wall_ms: int) -> str | None:
        """The reason to refuse a number that another node gave; None if it is within the bound."""
        if number <= self.limit(wall_ms):
            return None
        ahead_ms = (number >> COUNTER_BITS) - wall_ms
        ahead = (
            f"{ahead_ms / 1000:,.0f} s" if ahead_ms < _DAY_MS else f"{ahead_ms // _DAY_MS:,} days"
        )
        return (
            f"version {number} is {ahead} ahead of the clock of this node, and replication.clock_bound_ms is "
            f"{self._bound_ms}: set the clocks of the nodes"
        )


def _at(wall_ms: int) -> int:
    return min(max(0, wall_ms), _LATEST_MS) << COUNTER_BITS
