"""The way of messages from a sender to a receiver: what was due when, what came when, and how late."""

from __future__ import annotations

import struct
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chronoline.core.lateness import Lateness
from chronoline_bench.tally import Tally

_PAIR = struct.Struct("<qq")


def wall_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000


def write_pairs(path: Path, pairs: Iterable[tuple[int, int]]) -> None:
    """Write a file of pairs: a message's number, and the time in µs at which it is due, or came."""
    path.write_bytes(b"".join(_PAIR.pack(*pair) for pair in pairs))


def take_pairs(path: Path) -> Iterator[tuple[int, int]]:
    """The pairs of a file, which is removed."""
    data = path.read_bytes()
    path.unlink()
    for number, moment_us in _PAIR.iter_unpack(data):
        yield int(number), int(moment_us)


class Notes:
    """What came to a receiver, in its own process, and how many of its acks were done or refused."""

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
        """How many messages came since the last `take`; one that came twice counts once."""
        return len(set(self.numbers[self._taken :]))

    def take(self) -> Iterator[tuple[int, int]]:
        """The pairs of what came since the last call."""
        begin, end = self._taken, len(self.numbers)
        self._taken = end
        return zip(self.numbers[begin:end], self._came_us[begin:end], strict=True)


@dataclass(slots=True)
class Arrivals:
    """What came to all receivers, by number. A message that came twice is late by its first arrival."""

    first_us: dict[int, int] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    """Acks that were refused."""
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
        """Add the notes of one receiver."""
        for number, came_us in pairs:
            self.first_us.setdefault(number, came_us)
            self.times[number] += 1
        self.refused += refused
        self.last_ack_us = max(self.last_ack_us, last_ack_us)

    def of(self, numbers: Iterable[int]) -> Arrivals:
        """Those of some messages alone."""
        known = [number for number in numbers if number in self.first_us]
        return Arrivals(
            {number: self.first_us[number] for number in known},
            Counter({number: self.times[number] for number in known}),
        )


def count_up(due_us: Mapping[int, int], arrivals: Arrivals, *, left: int = 0) -> Tally:
    """Messages that were lost, that came twice or were never sent, and that came before they were due.

    A message comes again if its ack was refused, or if it is `left` in the store though it came.
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
    """The span in which as much falls due as is sent: before and after it there is less to do."""
    due_us: Mapping[int, int]
    arrivals: Arrivals
    control: Lateness = field(default_factory=lambda: Lateness.of([]))
    """How late a process woke meanwhile that only sleeps."""

    @property
    def rate(self) -> float:
        """Messages sent in a second."""
        return len(self.due_us) * 1_000_000 / max(1, self.ended_us - self.started_us)

    @property
    def tally(self) -> Tally:
        return count_up(self.due_us, self.arrivals)

    @property
    def whole(self) -> Lateness:
        return Lateness.of(self.late_ms().values())

    @property
    def steady(self) -> Lateness:
        return self.between(*self.steady_us)

    def between(self, first_us: int, last_us: int) -> Lateness:
        """The lateness of what fell due in a span of time."""
        return Lateness.of(self.late_ms(first_us, last_us).values())

    def late_ms(self, first_us: int = 0, last_us: int = 1 << 62) -> dict[int, float]:
        """How long after they were due messages came that were due in a span of time, by number."""
        came_us = self.arrivals.first_us
        return {
            number: (came_us[number] - due) / 1_000
            for number, due in self.due_us.items()
            if number in came_us and first_us <= due < last_us
        }
