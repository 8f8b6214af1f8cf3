"""Whether the intake makes progress, judged by the store and the input alone: a hung process says nothing."""

from __future__ import annotations

from collections.abc import Mapping


class IntakeProgress:
    """The time for which a task of the intake has taken in nothing although records wait for it."""

    def __init__(self, intakes: int) -> None:
        self._intakes = intakes
        self._seen: dict[int, Mapping[int, int]] = {}
        self._moved_s: dict[int, float] = {}
        self.still_s = 0.0
        """At the last look: while the input cannot be asked, nobody knows whether records wait."""

    def look(self, positions: Mapping[int, int], latest: Mapping[int, int], now_s: float) -> None:
        """Compares the positions of this pipe's partitions with those of the last look, task by task."""
        held = sorted(positions)
        for piece in range(self._intakes):
            mine = {each: positions[each] for each in held[piece :: self._intakes]}
            waits = any(latest.get(each, 0) > position for each, position in mine.items())
            if not waits or mine != self._seen.get(piece):
                self._moved_s[piece] = now_s
            self._seen[piece] = mine
        self.still_s = now_s - min(self._moved_s.values())

    def begin(self) -> None:
        """Starts again, with a new task."""
        self._seen.clear()
        self.still_s = 0.0
