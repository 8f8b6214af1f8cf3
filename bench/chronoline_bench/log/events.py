"""Events for the bench, and the book of their acknowledged places."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import count, islice
from typing import Protocol

from chronoline.log import NewEvent
from chronoline_bench.tally import Tally

VALUE_BYTES = 256
PARTITIONS = 8
_NUMBER_BYTES = 8
_REST = random.Random(3).randbytes(VALUE_BYTES - _NUMBER_BYTES)
_NUMBERS = count()


def make_events(how_many: int) -> list[NewEvent]:
    """Returns events with evenly spread keys and distinct values."""
    return [
        NewEvent(key=b"key-%d" % number, value=number.to_bytes(_NUMBER_BYTES, "big") + _REST)
        for number in islice(_NUMBERS, how_many)
    ]


class Valued(Protocol):
    """An event with a value."""

    @property
    def value(self) -> bytes | None: ...


class Place(Protocol):
    """The place of an event."""

    @property
    def partition(self) -> int: ...

    @property
    def sequence(self) -> int: ...


class Found(Valued, Place, Protocol):
    """An event as it was read."""


class Book:
    """The acknowledged place of each event, to check reads against."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._noted: dict[tuple[int, int], bytes | None] = {}
        self._firsts: dict[int, int] = {}
        """The first sequence of the page in each partition."""

    def note(self, events: Iterable[Valued], places: Iterable[Place]) -> None:
        """Adds acknowledged events with their places. Of two in the same place one is lost."""
        for event, place in zip(events, places, strict=True):
            key = (place.partition, place.sequence)
            self._tally.lost += key in self._noted
            self._noted.setdefault(key, event.value)

    def check(self, found: Iterable[Found]) -> None:
        """Checks the events that were read of this page.

        An event that is not in its acknowledged place is lost, and so is a sequence without an event. An
        event that was read again, or that was never appended, is duplicated.
        """
        read: Counter[tuple[int, int]] = Counter()
        for event in found:
            key = (event.partition, event.sequence)
            read[key] += 1
            self._tally.lost += self._noted.get(key, event.value) != event.value
        strange = read.keys() - self._noted.keys()
        self._tally.lost += len(self._noted.keys() - read.keys())
        self._tally.lost += self._holes(read.keys() | self._noted.keys())
        self._tally.duplicated += len(strange) + read.total() - len(read)

    def turn(self) -> None:
        """Begins a new page for later appends."""
        for partition, sequence in self._noted:
            self._firsts[partition] = max(self._firsts.get(partition, 0), sequence + 1)
        self._noted.clear()

    def _holes(self, places: Iterable[tuple[int, int]]) -> int:
        counts: Counter[int] = Counter()
        ends: dict[int, int] = dict(self._firsts)
        for partition, sequence in places:
            if sequence >= self._firsts.get(partition, 0):
                counts[partition] += 1
                ends[partition] = max(ends.get(partition, 0), sequence + 1)
        return sum(
            end - self._firsts.get(partition, 0) - counts[partition]
            for partition, end in ends.items()
        )
