"""What became of messages between producers and consumers: the files of both ends, matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chronoline.runtime.percentiles import Lateness
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.tally import Tally


@dataclass(slots=True)
class Came:
    """What consumers were given, all of them together."""

    arrivals: Arrivals = field(default_factory=Arrivals)
    refused: int = 0
    """Acks that were refused."""
    last_ack_us: int = 0

    @property
    def first_us(self) -> int:
        return min(self.arrivals.first_us.values(), default=0)

    @property
    def last_us(self) -> int:
        return max(self.arrivals.first_us.values(), default=0)

    def add(self, pairs: Iterable[tuple[int, int]], *, refused: int, last_ack_us: int) -> None:
        """One of them."""
        self.arrivals.add(pairs)
        self.refused += refused
        self.last_ack_us = max(self.last_ack_us, last_ack_us)


def count_up(due_us: Mapping[int, int], came: Came, *, left: int) -> Tally:
    """What was lost, came twice or without having been put, and came too soon.

    A message whose ack was refused, and one that is `left` though it came, will come again.
    """
    first_us = came.arrivals.first_us
    lost = sum(number not in first_us for number in due_us)
    again = came.arrivals.times.total() - len(first_us)
    strange = sum(number not in due_us for number in first_us)
    kept = max(came.refused, left - lost, 0)
    early = sum(first_us[number] < due for number, due in due_us.items() if number in first_us)
    return Tally(lost=lost, duplicated=again + strange + kept, early=early)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One load, through to the consumers."""

    started_us: int
    ended_us: int
    """When the first and the last of it were put."""
    delay_s: int
    due_us: Mapping[int, int]
    came_us: Mapping[int, int]
    control: Lateness
    """How late a process woke meanwhile that only sleeps."""

    @property
    def steady(self) -> Lateness:
        """The lateness of what fell due while as much fell due as was put."""
        first_us = self.started_us + self.delay_s * 1_000_000
        return Lateness.of(
            (came - self.due_us[number]) / 1_000
            for number, came in self.came_us.items()
            if number in self.due_us and first_us <= self.due_us[number] < self.ended_us
        )
