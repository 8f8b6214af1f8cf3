"""The passage of messages from a sender to receivers: their due times, arrivals and lateness."""

from __future__ import annotations

import struct
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chronoline.core.lateness import Lateness
from chronoline_bench.harness.slices import Point
from chronoline_bench.tally import Tally

_PAIR = struct.Struct("<qq")


def wall_us() -> int:
    """Returns the wall clock's time."""
    return time.time_ns() // 1_000


def write_pairs(path: Path, pairs: Iterable[tuple[int, int]]) -> None:
    """Writes a file of pairs: a message's number, and its due or arrival time in µs."""
    path.write_bytes(b"".join(_PAIR.pack(*pair) for pair in pairs))


def take_pairs(path: Path) -> Iterator[tuple[int, int]]:
    """Yields the pairs of a file, and removes the file."""
    data = path.read_bytes()
    path.unlink()
    for number, moment_us in _PAIR.iter_unpack(data):
        yield int(number), int(moment_us)


class Notes:
    """The arrivals at one receiver, in its own process, and its acks."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self._came_us = array("q")
        self._taken = 0
        self.acked = 0
        self.refused = 0
        self.last_ack_us = 0

    def came(self, number: int, moment_us: int) -> None:
        self._came_us.append(moment_us)
        self.numbers.append(number)  # last: another thread may count them

    def settled(self, *, acked: int = 0, refused: int = 0) -> None:
        self.acked += acked
        self.refused += refused
        self.last_ack_us = wall_us()

    @property
    def untaken(self) -> int:
        """The number of messages that came since the last `take`; one that came twice counts once."""
        return len(set(self.numbers[self._taken :]))

    def take(self) -> Iterator[tuple[int, int]]:
        """Returns the pairs of the arrivals since the last call."""
        begin, end = self._taken, len(self.numbers)
        self._taken = end
        return zip(self.numbers[begin:end], self._came_us[begin:end], strict=True)


@dataclass(slots=True)
class Arrivals:
    """The arrivals at all receivers, by number. Lateness is that of a message's first arrival."""

    first_us: dict[int, int] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    """The number of refused acks."""
    last_ack_us: int = 0

    @property
    def earliest_us(self) -> int:
        return min(self.first_us.values(), default=0)

    @property
    def latest_us(self) -> int:
        return max(self.first_us.values(), default=0)

    def add(
        self, pairs: Iterable[tuple[int, int]], *, refused: int = 0, last_ack_us: int = 0
    ) -> None:
        """Adds the notes of one receiver."""
        for number, came_us in pairs:
            self.first_us.setdefault(number, came_us)
            self.times[number] += 1
        self.refused += refused
        self.last_ack_us = max(self.last_ack_us, last_ack_us)

    def of(self, numbers: Iterable[int]) -> Arrivals:
        """Returns the arrivals of these messages."""
        known = [number for number in numbers if number in self.first_us]
        return Arrivals(
            {number: self.first_us[number] for number in known},
            Counter({number: self.times[number] for number in known}),
        )


def count_up(due_us: Mapping[int, int], arrivals: Arrivals, *, left: int = 0) -> Tally:
    """Counts messages that were lost, came twice or unsent, or came before they were due.

    A refused ack counts as a duplicate, and so does a message that came and is still `left` in the store.
    """
    came_us = arrivals.first_us
    lost = sum(number not in came_us for number in due_us)
    again = arrivals.times.total() - len(came_us)
    strange = sum(number not in due_us for number in came_us)
    kept = max(arrivals.refused, left - lost, 0)
    early = sum(came_us.get(number, due) < due for number, due in due_us.items())
    return Tally(lost=lost, duplicated=again + strange + kept, early=early)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One load, from its sender to its receivers."""

    started_us: int
    ended_us: int
    """When the first and the last message were sent."""
    steady_us: tuple[int, int]
    """The span in which messages fall due at the rate of sending; outside it the load is lower."""
    due_us: Mapping[int, int]
    arrivals: Arrivals
    control: Lateness = field(default_factory=lambda: Lateness.of([]))
    """The lateness of the control during the load."""
    control_points: Sequence[Point] = ()
    """The wake-ups of the control."""
    cores: Mapping[str, float] = field(default_factory=dict)
    """The cores that each part used while the load was sent."""

    @property
    def rate(self) -> float:
        """Messages sent per second."""
        return len(self.due_us) * 1_000_000 / max(1, self.ended_us - self.started_us)

    @property
    def tally(self) -> Tally:
        return count_up(self.due_us, self.arrivals)

    @property
    def whole(self) -> Lateness:
        return Lateness.of(self.late_ms().values())

    @property
    def points(self) -> list[Point]:
        """The due time and lateness of each message that came."""
        return [(self.due_us[number], late_ms) for number, late_ms in self.late_ms().items()]

    def sent_between(self, first_us: int, last_us: int) -> set[int]:
        """Returns the messages sent in a span of time: their numbers follow each other at a steady rate."""
        first, step_us = min(self.due_us, default=0), 1_000_000 / self.rate
        return {
            number
            for number in self.due_us
            if first_us <= self.started_us + (number - first) * step_us < last_us
        }

    def joined(self, other: Passage) -> Passage:
        """Returns this load with the messages of another one, which was sent beside it."""
        arrivals = Arrivals(
            {**self.arrivals.first_us, **other.arrivals.first_us},
            self.arrivals.times + other.arrivals.times,
        )
        return replace(self, due_us={**self.due_us, **other.due_us}, arrivals=arrivals)

    @property
    def steady(self) -> Lateness:
        return self.between(*self.steady_us)

    def between(self, first_us: int, last_us: int) -> Lateness:
        """Returns the lateness of messages that fell due in a span of time."""
        return Lateness.of(self.late_ms(first_us, last_us).values())

    def late_ms(self, first_us: int = 0, last_us: int = 1 << 62) -> dict[int, float]:
        """Returns the lateness of each message that fell due in a span of time, by number."""
        came_us = self.arrivals.first_us
        return {
            number: (came_us[number] - due) / 1_000
            for number, due in self.due_us.items()
            if number in came_us and first_us <= due < last_us
        }
