"""Readers of a pipe's input: one contract, with implementations for Kafka and for the log.

A reader gathers records of many partitions and says, for each partition, which range of offsets they are
from: all records of the range are there, though offsets may be missing. It keeps no progress of its own. The
positions in the store are authoritative, and its user assigns them.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from chronoline.core.errors import ChronolineError
from chronoline.core.message import content_bytes
from chronoline.log import Event, Log
from chronoline.log.follower import MOST_BYTES, Follower
from chronoline.pipe.contract import SourceRecord
from chronoline.pipe.places import Place
from chronoline.runtime.service import Closable

_LOG_LATENCY_MS = 50


class OutOfRange(ChronolineError):
    """A partition has no records at its position: they were deleted, or its end was lost."""


class ReadRange(NamedTuple):
    """All records of one partition in a range of offsets, in their order."""

    partition: int
    first: int
    upto: int
    records: list[SourceRecord]


class InputReader(Closable):
    """Reads partitions of a topic. It is for one thread, and for the process that opened it."""

    @abstractmethod
    def assign(self, positions: Mapping[int, int]) -> None:
        """Reads these partitions from these positions on, and no others. Without any it rests."""

    @abstractmethod
    def poll(self, *, wait_s: float, limit: int) -> list[ReadRange]:
        """Waits for a record, gathers more for the linger time, and returns them, at most `limit`.

        The record with which values, keys and headers reach `MOST_BYTES` is the last one.

        The ranges of a partition follow each other without a gap. Raises `OutOfRange`, `TopicNotFound`,
        `StoreUnavailable` for a log, and `KafkaUnavailable`. After an error records may be missing:
        assign the positions again.
        """


def open_reader(place: Place, *, group: str, linger_ms: int) -> InputReader:
    """Opens a reader; Kafka knows it by `group`, of which it does not become a member."""
    if place.kind == "log":
        return LogInputReader(place, linger_ms=linger_ms)
    from chronoline.pipe.kafka_reader import KafkaInputReader  # noqa: PLC0415 - its library is optional

    return KafkaInputReader(place, group=group, linger_ms=linger_ms)


class ReadPositions:
    """The positions of a reader, by partition."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self._next = dict(positions)

    def ranges(
        self, records: Iterable[SourceRecord], ends: Mapping[int, int] | None = None
    ) -> list[ReadRange]:
        """Moves the positions behind the records, and to `ends` where there are none up to there.

        Partitions without a position are ignored: they were assigned before.
        """
        found: dict[int, list[SourceRecord]] = {}
        for record in records:
            if record.partition in self._next:
                found.setdefault(record.partition, []).append(record)
        reached = {each: some[-1].offset + 1 for each, some in found.items()}
        for partition, end in (ends or {}).items():
            if end > max(self._next.get(partition, end), reached.get(partition, 0)):
                reached[partition] = end
        ranges = [
            ReadRange(partition, self._next[partition], upto, found.get(partition, []))
            for partition, upto in reached.items()
        ]
        self._next |= reached
        return ranges


class LogInputReader(InputReader):
    """Reads a topic of the log."""

    def __init__(self, place: Place, *, linger_ms: int) -> None:
        self._topic = place.topic
        self._linger_s = linger_ms / 1000
        self._log = Log(place.log, max_latency_ms=_LOG_LATENCY_MS)
        self._positions = ReadPositions({})
        self._follower: Follower | None = None

    def assign(self, positions: Mapping[int, int]) -> None:
        self._positions = ReadPositions(positions)
        self._follower = self._log.follow(self._topic, positions) if positions else None

    def poll(self, *, wait_s: float, limit: int) -> list[ReadRange]:
        if self._follower is None:
            time.sleep(wait_s)  # nothing can come before the next `assign`
            return []
        events = self._follower.poll(limit, wait_s, MOST_BYTES)
        if events:
            self._gather(events, self._follower, limit)
        ranges = self._positions.ranges(map(_record, events))
        for each in ranges:
            if each.first < each.records[0].offset:  # a log's sequences have no gaps
                raise OutOfRange(
                    f"events of partition {each.partition} of {self._topic!r}, from sequence {each.first} on,"
                    " were deleted"
                )
        return ranges

    def _gather(self, events: list[Event], follower: Follower, limit: int) -> None:
        """Adds what comes in the linger time, until there is enough."""
        until_s = time.monotonic() + self._linger_s
        left_bytes = MOST_BYTES - total_bytes(events)
        while len(events) < limit and left_bytes > 0:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            more = follower.poll(limit - len(events), left_s, left_bytes)
            events += more
            left_bytes -= total_bytes(more)

    def close(self) -> None:
        self._log.close()


def total_bytes(records: Iterable[Event | SourceRecord]) -> int:
    """The size of all values, keys and headers."""
    return sum(content_bytes(each.value, each.key, each.headers) for each in records)


def _record(event: Event) -> SourceRecord:
    return SourceRecord(
        event.partition, event.sequence, event.key, event.value, event.headers, event.ts
    )
