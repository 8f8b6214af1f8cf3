"""The writer: data first, then one index transaction, then the answer."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chronoline.core.errors import ChronolineError, OutcomeUnknown, StoreError, StoreUnavailable
from chronoline.core.ids import ID_ENTROPY_BYTES, id_time, make_id
from chronoline.core.message import content_bytes
from chronoline.log.contract import (
    Index,
    LogTopic,
    NewChunk,
    Objects,
    ObjectSwept,
    ObjectTooOld,
    Source,
)
from chronoline.log.events import NewEvent, Position
from chronoline.log.format import MAGIC, pack_chunk
from chronoline.log.partitioner import partition_id
from chronoline.runtime.clock import Clock

_SWEPT_TRIES = 5
_SETTLE_TRIES = 5
_SETTLE_WAIT_S = 0.2

logger = logging.getLogger(__name__)


class Placed(NamedTuple):
    """An event whose partition is known."""

    topic: LogTopic
    partition: int
    event: NewEvent
    together: bool = False
    """Whether it must be in one commit with events of other partitions, from the same call."""


def placed_bytes(placed: Placed) -> int:
    """The size of an event in memory, which is nearly its size in an object."""
    event = placed.event
    return content_bytes(event.value, event.key, event.headers)


def put_together(placed: Sequence[Placed]) -> Sequence[Placed]:
    """The events of one call. Events of a single partition are in one commit anyway."""
    if len({each.partition for each in placed}) == 1:
        return placed
    return [Placed(topic, partition, event, True) for topic, partition, event, _ in placed]


def place_of(placed: Placed) -> tuple[int, int] | None:
    """Topic and partition, whose number in a commit is bounded; None for an event that fits any commit."""
    return (placed.topic.uid, placed.partition) if placed.together else None


class Placement:
    """Chooses partitions: the one that is asked for, that of the key, or the next in turn."""

    def __init__(self, first: int = 0) -> None:
        self._turn = itertools.count(first)

    def place(self, topic: LogTopic, event: NewEvent) -> Placed:
        if event.partition is not None:
            partition = event.partition
        elif event.key is not None:
            partition = partition_id(event.key, topic.partitions)
        else:
            partition = next(self._turn) % topic.partitions
        return Placed(topic, partition, event)


class Appender:
    """Makes groups of events durable."""

    def __init__(
        self,
        objects: Objects,
        index: Index,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._objects = objects
        self._index = index
        self._clock = clock
        self._random_bytes = random_bytes
        self._floor_ms = 0
        """Names of an earlier time are refused, as far as we know."""

    def write(self, placed: Sequence[Placed]) -> list[Position]:
        """Appends events in their order; returns their positions.

        It is one object and one commit, unless there are more partitions than the index takes in one. Events
        that must stay together come first, so that they are split only if they cannot fit by themselves.
        """
        now_ms = self._clock.now_ms()
        places: dict[tuple[int, int], list[int]] = {}
        together: dict[tuple[int, int], None] = {}
        for number, each in enumerate(placed):
            place = each.topic.uid, each.partition
            places.setdefault(place, []).append(number)
            if each.together:
                together[place] = None
        positions: dict[int, Position] = {}
        parts: list[bytes] = [MAGIC]
        chunks: list[NewChunk] = []
        numbers: list[list[int]] = []

        def commit() -> None:
            try:
                firsts = self._commit(b"".join(parts), chunks)
            except ChronolineError as error:
                if positions:
                    raise OutcomeUnknown(f"a part is appended, the rest is not: {error}") from error
                raise
            for chunk, first, group in zip(chunks, firsts, numbers, strict=True):
                for sequence, number in enumerate(group, first):
                    positions[number] = Position(partition=chunk.partition, sequence=sequence)
            del parts[1:], chunks[:], numbers[:]

        size = len(MAGIC)
        for uid, partition in together | dict.fromkeys(places):
            group = places[uid, partition]
            data = pack_chunk([placed[number].event for number in group], now_ms)
            if len(chunks) == self._index.max_chunks_per_commit:
                commit()
                size = len(MAGIC)
            parts.append(data)
            chunks.append(NewChunk(uid, partition, len(group), size, len(data)))
            numbers.append(group)
            size += len(data)
        commit()
        return [positions[number] for number in range(len(placed))]

    def _commit(self, data: bytes, chunks: Sequence[NewChunk]) -> list[int]:
        for _ in range(_SWEPT_TRIES):
            # A clock that is behind must not keep it from appending.
            now_ms = max(self._clock.now_ms(), self._floor_ms)
            name = make_id(now_ms, self._random_bytes(ID_ENTROPY_BYTES))
            self._objects.put(name, data)
            try:
                return self.settle(name, chunks)
            except ObjectSwept:
                logger.warning("object %r was swept before its commit; writing it again", name)
            except ObjectTooOld as error:
                logger.warning("object %r is too old for its commit; writing it again", name)
                self._floor_ms = max(self._floor_ms, (id_time(error.floor) or 0) + 1)
        raise StoreUnavailable("the sweeper is faster than this writer; give it a longer grace")

    def settle(
        self, name: str, chunks: Sequence[NewChunk], source: Source | None = None
    ) -> list[int]:
        """Commits an object; repeats it while the outcome is unknown: its name settles what happened.

        The index may have forgotten a name that is too old. Then only the first attempt knows that nothing
        was appended; after an unknown outcome it stays unknown.
        """
        unsure: OutcomeUnknown | None = None
        last: ChronolineError | None = None
        for _ in range(_SETTLE_TRIES):
            try:
                # The time of the commit, not of the append: a start by time must not skip it.
                now_ms = self._clock.now_ms()
                return self._index.commit(name, chunks, now_ms=now_ms, source=source)
            except OutcomeUnknown as error:
                unsure = last = error
            except ObjectTooOld as error:
                if unsure is None:
                    raise
                last = error
                break
            except StoreError as error:  # after any error the first one may have been done
                if unsure is None:
                    raise
                last = error
            time.sleep(_SETTLE_WAIT_S)  # a store that is gone needs a moment to come back
        raise OutcomeUnknown(f"{unsure} Asked again, the index answered: {last}") from last
