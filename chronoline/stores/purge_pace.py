"""The pace of purging: the rest of a process between two rounds.

A round that finds nothing costs the store a few statements, at every broker and pipe that shares it. So
rounds become rarer while there is nothing to remove, and frequent again when there is. A broker that deletes
a topic does not wait for a round (`broker.topic_lifecycle`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

_SLOWEST = 5
"""The longest rest is this many times the shortest."""


class PurgePace:
    """When to purge next."""

    def __init__(
        self, shortest_s: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._shortest_s = shortest_s
        self._monotonic = monotonic
        self._rest_s = shortest_s
        self._next_s = monotonic()

    @property
    def is_due(self) -> bool:
        return self._monotonic() >= self._next_s

    def purged(self, removed: int) -> None:
        """Notes the end of a round that removed this many rows."""
        if removed:
            self._rest_s = self._shortest_s
        else:
            self._rest_s = min(self._rest_s * 2, self._shortest_s * _SLOWEST)
        # A caller that comes at the same intervals must not miss its turn by a millisecond.
        self._next_s = self._monotonic() + self._rest_s - self._shortest_s / 2
