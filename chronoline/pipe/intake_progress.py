"""Whether the intake makes progress, judged by the store and the input alone: a hung process says nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping

_START_S = 45.0
"""After a start, stillness does not count for this time or until a first record: processes may need long."""
_LONGEST_GAP_S = 3.0
"""Looks come every second. Of a longer gap, in which the store or the input was away, only this counts."""


class IntakeProgress:
    """The time for which a task of the intake has taken in nothing although records wait for it."""

    def __init__(self, intakes: int) -> None:
        self._intakes = intakes
        self._lock = threading.Lock()  # the pipe's thread begins, the upkeep's looks
        self._seen: dict[int, Mapping[int, int]] = {}
        self._still_from_s: dict[int, float] = {}
        """By task; after a start it lies in the future until the task has taken something in."""
        self._looked_s: float | None = None
        self.still_s = 0.0
        """At the last look: while the input cannot be asked, nobody knows whether records wait."""

    def look(self, positions: Mapping[int, int], latest: Mapping[int, int], now_s: float) -> None:
        """Compares the positions of this pipe's partitions with those of the last look, task by task."""
        with self._lock:
            self._pass_gap(now_s)
            held = sorted(positions)
            for piece in range(self._intakes):
                mine = {each: positions[each] for each in held[piece :: self._intakes]}
                waits = any(latest.get(each, 0) > position for each, position in mine.items())
                from_s = self._still_from_s.setdefault(piece, now_s + _START_S)
                seen = self._seen.get(piece, {})
                if any(mine[each] > seen.get(each, mine[each]) for each in mine):
                    self._still_from_s[piece] = now_s
                elif not waits or mine != seen:
                    self._still_from_s[piece] = max(now_s, from_s)
                self._seen[piece] = mine
            self.still_s = max(0.0, now_s - min(self._still_from_s.values()))

    def _pass_gap(self, now_s: float) -> None:
        looked_s = now_s if self._looked_s is None else self._looked_s
        unseen_s = max(0.0, now_s - looked_s - _LONGEST_GAP_S)
        for piece in self._still_from_s:
            self._still_from_s[piece] += unseen_s
        self._looked_s = now_s

    def begin(self) -> None:
        """Starts again, with a new task."""
        with self._lock:
            self._seen.clear()
            self._still_from_s.clear()
            self.still_s = 0.0
