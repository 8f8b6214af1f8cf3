"""What became of messages between the input topic and the output topic: the files of both ends, matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chronoline.runtime.percentiles import Lateness
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.pipes.loader import Loaded
from chronoline_bench.tally import Tally

_US = 1_000


def count_up(tally: Tally, due_ms: Mapping[int, int], arrivals: Arrivals) -> None:
    """Adds what was lost, came twice or without having been sent, and came too soon."""
    came = arrivals.first_us
    tally.lost += sum(number not in came for number in due_ms)
    tally.duplicated += arrivals.times.total() - len(came)
    tally.duplicated += sum(number not in due_ms for number in came)
    tally.early += sum(
        number in due_ms and came_us < due_ms[number] * _US for number, came_us in came.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One load, through to the other end."""

    loaded: Loaded
    shortest_ms: int
    longest_ms: int
    due_ms: Mapping[int, int]
    came_us: Mapping[int, int]
    """Of those that came."""
    control: Lateness
    """How late a process woke meanwhile that only sleeps."""
    tally: Tally = field(default_factory=Tally)
    """What stood out until then."""

    @property
    def whole(self) -> Lateness:
        return self.between(0, 1 << 62)

    @property
    def steady(self) -> Lateness:
        """The lateness of what fell due while as much fell due as was published.

        Before the longest delay is over there is less to fire than comes in, and after the end there is
        nothing to take in.
        """
        return self.between(
            self.loaded.started_ms + self.longest_ms, self.loaded.ended_ms + self.shortest_ms
        )

    def between(self, first_ms: int, last_ms: int) -> Lateness:
        """The lateness of what fell due then."""
        return Lateness.of(
            came_us / _US - self.due_ms[number]
            for number, came_us in self.came_us.items()
            if first_ms <= self.due_ms[number] < last_ms
        )

    @property
    def last_came_ms(self) -> float:
        return max(self.came_us.values(), default=0) / _US

    def late_slices(self, slice_ms: int, limit_ms: float, first_ms: int, last_ms: int) -> list[int]:
        """The ends of the slices of time in which half of what fell due came later than a limit."""
        slices: dict[int, list[float]] = {}
        for number, came_us in self.came_us.items():
            due_ms = self.due_ms[number]
            if first_ms <= due_ms < last_ms:
                slices.setdefault((due_ms - first_ms) // slice_ms, []).append(
                    came_us / _US - due_ms
                )
        return [
            first_ms + (place + 1) * slice_ms
            for place, late_ms in sorted(slices.items())
            if Lateness.of(late_ms).p50_ms > limit_ms
        ]
