"""What came, as far as anybody who waits for it knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Arrivals:
    """What came, by number. A message that came again is late by its first coming."""

    first_us: dict[int, int] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)

    def add(self, pairs: Iterable[tuple[int, int]]) -> int:
        """How many they were."""
        added = 0
        for number, came_us in pairs:
            self.first_us.setdefault(number, came_us)
            self.times[number] += 1
            added += 1
        return added

    def of(self, numbers: Iterable[int]) -> Arrivals:
        """Those of some messages alone."""
        known = [number for number in numbers if number in self.first_us]
        return Arrivals(
            {number: self.first_us[number] for number in known},
            Counter({number: self.times[number] for number in known}),
        )
