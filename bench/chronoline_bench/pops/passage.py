"""What became of timers: what was asked for and what came, matched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chronoline.runtime.percentiles import Lateness
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.pops.notes import Asked
from chronoline_bench.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One load, through to the receiver."""

    started_us: int
    ended_us: int
    """When the first and the last timer were asked for."""
    asked: tuple[Asked, ...]
    arrivals: Arrivals

    def tally(self) -> Tally:
        """What was lost, came twice or without having been asked for, and came too soon."""
        came_us, times = self.arrivals.first_us, self.arrivals.times
        numbers = {each.number for each in self.asked}
        return Tally(
            lost=sum(number not in came_us for number in numbers),
            duplicated=times.total() - len(came_us) + len(set(came_us) - numbers),
            early=sum(came_us.get(each.number, each.due_us) < each.due_us for each in self.asked),
        )

    def late_ms(self, is_meant: Callable[[Asked], bool] = lambda _: True) -> list[float]:
        """How long after they were due those came that are meant."""
        came_us = self.arrivals.first_us
        return [
            (came_us[each.number] - each.due_us) / 1000
            for each in self.asked
            if each.number in came_us and is_meant(each)
        ]

    def late(self, first_us: int, last_us: int) -> Lateness:
        """Of what was due from one moment to another."""
        return Lateness.of(self.late_ms(lambda each: first_us <= each.due_us < last_us))


def share_within(late_ms: Iterable[float], most_ms: float) -> float:
    """How many of a hundred; 0 if there are none."""
    values = list(late_ms)
    return 100 * sum(each <= most_ms for each in values) / len(values) if values else 0.0
