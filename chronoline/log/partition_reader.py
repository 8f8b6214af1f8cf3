"""Readers of partitions: from the index to chunks, from chunks to events.

A damaged or unreadable object stops its own partition for a while, and the others go on. An error of the
index concerns all.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping

from chronoline.core.errors import StoreUnavailable, TopicNotFound
from chronoline.log.contract import Chunk, Head, Index, LogTopic, ObjectMissing, Objects
from chronoline.log.events import Event
from chronoline.log.format import DamagedObject, unpack_chunk
from chronoline.runtime.clock import Clock

_CHUNKS_AT_ONCE = 256
_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends with the chunk that passes it."""
_DAMAGE_WAIT_MS = 5_000
_UNREADABLE_WAIT_MS = 1_000
_LONGEST_IDLE_S = 60.0

logger = logging.getLogger(__name__)


def heads_of(index: Index, topic: LogTopic) -> list[Head]:
    """The ends of all partitions. Raises `TopicNotFound` if the topic was deleted."""
    heads = index.heads(topic.uid)
    if not heads:
        raise TopicNotFound(f"topic {topic.name!r} was deleted")
    return heads


class UnreadableObject(StoreUnavailable):
    """An object of the log cannot be read now. Try again."""


class PartitionReader:
    """Reads one partition in sequence. It holds no lock and keeps no progress: its caller does.

    A chunk is read and unpacked once, however few of its events are asked for at a time: what is left of it
    is kept for the next call.
    """

    def __init__(
        self, objects: Objects, index: Index, topic: LogTopic, partition: int, sequence: int
    ) -> None:
        self._objects = objects
        self._index = index
        self._topic = topic
        self.partition = partition
        self.sequence = sequence
        """The next event to read; it may be set back."""
        self._chunks: deque[Chunk] = deque()
        """The chunks that the index named and that are not read yet."""
        self._unpacked: list[Event] = []
        self._batch_bytes = 0

    @property
    def has_more_at_hand(self) -> bool:
        """Whether the next events are unpacked already."""
        return self._holds(self.sequence)

    def is_behind(self, head: Head) -> bool:
        """Whether there is more to read. Deleted events are skipped."""
        self.sequence = max(self.sequence, head.first_sequence)
        return self.sequence < head.next_sequence

    def read(self, limit: int) -> list[Event]:
        """The next events, at most `limit`; none if it is up to date.

        Deleted events are skipped. An object that is missing because it was compacted meanwhile is looked up
        again; one that is really missing, or damaged, raises `DamagedObject`, and one that cannot be read now
        `UnreadableObject`. An error hides no event: earlier events are returned first.
        """
        events: list[Event] = []
        self._batch_bytes = 0
        while len(events) < limit and self._batch_bytes < _BATCH_BYTES:
            try:
                if not self._unpack_next(limit - len(events)):
                    break
            except Exception:
                if events:
                    break
                raise
            place = self.sequence - self._unpacked[0].sequence
            events += self._unpacked[place : place + limit - len(events)]
            self.sequence = events[-1].sequence + 1
        if not self._holds(self.sequence):
            self._unpacked = []
        return events

    def _holds(self, sequence: int) -> bool:
        unpacked = self._unpacked
        return bool(unpacked) and unpacked[0].sequence <= sequence <= unpacked[-1].sequence

    def _unpack_next(self, limit: int) -> bool:
        """Unpacks the chunk of the next event, if needed; false if there is none."""
        while not self._holds(self.sequence):
            chunk = self._next_chunk(min(_CHUNKS_AT_ONCE, limit))
            if chunk is None:
                return False
            data = self._get(chunk)
            if data is not None:
                self._batch_bytes += len(data)
                self._unpacked = unpack_whole(self._topic, chunk, data)
                self.sequence = max(self.sequence, chunk.first_sequence)
        return True

    def _next_chunk(self, limit: int) -> Chunk | None:
        """The chunk of the next event, or, if that was deleted, the first one."""
        while self._chunks:
            chunk = self._chunks.popleft()
            if 0 <= self.sequence - chunk.first_sequence < chunk.events:
                return chunk
        self._chunks.extend(
            self._index.chunks(
                self._topic.uid, self.partition, from_sequence=self.sequence, limit=limit
            )
        )
        return self._chunks.popleft() if self._chunks else None

    def _get(self, chunk: Chunk) -> bytes | None:
        """The bytes of a chunk; None if the events lie elsewhere by now."""
        try:
            return self._objects.get(chunk.object_name, chunk.offset, chunk.length)
        except ObjectMissing as error:
            self._chunks.clear()
            if chunk in self._look_again(chunk):
                raise DamagedObject(
                    f"object {chunk.object_name!r} is missing: {self._events_of(chunk)}"
                ) from error
            return None
        except StoreUnavailable as error:
            raise UnreadableObject(f"{error}: {self._events_of(chunk)}") from error

    def _events_of(self, chunk: Chunk) -> str:
        return (
            f"events of {self._topic.name!r}, partition {self.partition}, from sequence "
            f"{chunk.first_sequence}"
        )

    def _look_again(self, chunk: Chunk) -> list[Chunk]:
        return self._index.chunks(
            self._topic.uid, self.partition, from_sequence=chunk.first_sequence, limit=1
        )


def unpack_whole(topic: LogTopic, chunk: Chunk, data: bytes) -> list[Event]:
    """The events of a chunk, all that were committed. Raises `DamagedObject`."""
    events = unpack_chunk(
        data,
        topic=topic.name,
        partition=chunk.partition,
        first_sequence=chunk.first_sequence,
        name=chunk.object_name,
    )
    if len(events) != chunk.events:
        raise DamagedObject(
            f"object {chunk.object_name!r} has {len(events)} events of {topic.name!r}, partition "
            f"{chunk.partition}, from sequence {chunk.first_sequence}; {chunk.events} were committed"
        )
    return events


class Rest:
    """For how long a partition is left alone, and why."""

    def __init__(self) -> None:
        self._from_ms = 0
        self.until_ms = 0
        self.error: DamagedObject | UnreadableObject | None = None
        """The error that keeps the partition from being read, if any."""

    def begin(self, now_ms: int, wait_ms: int) -> None:
        self._from_ms, self.until_ms = now_ms, now_ms + wait_ms

    def lasts(self, now_ms: int) -> bool:
        """A clock that is put back before the rest began ends it."""
        return self._from_ms <= now_ms < self.until_ms

    def read(self, reader: PartitionReader, limit: int, now_ms: int) -> list[Event]:
        """The next events of a partition. An unreadable object yields none, and lets it rest."""
        try:
            events = reader.read(limit)
        except (DamagedObject, UnreadableObject) as error:
            logger.error("%s; its partition rests, the others go on", error)
            self.error = error
            damaged = isinstance(error, DamagedObject)
            self.begin(now_ms, _DAMAGE_WAIT_MS if damaged else _UNREADABLE_WAIT_MS)
            return []
        self.error = None
        return events


class LoneReader:
    """Reads partitions in turn for its caller alone: it takes no hold and stores no progress."""

    def __init__(
        self,
        objects: Objects,
        index: Index,
        topic: LogTopic,
        starts: Mapping[int, int],
        clock: Clock,
    ) -> None:
        self._index = index
        self._topic = topic
        self._clock = clock
        self._readers = [
            (PartitionReader(objects, index, topic, partition, sequence), Rest())
            for partition, sequence in starts.items()
        ]

    def read_on(self, batch: int) -> Iterator[Event]:
        """All present events: one look at the ends, then the partitions that have more.

        An unreadable object stops its partition alone: it rests, and `error` says why.
        """
        heads = {head.partition: head for head in heads_of(self._index, self._topic)}
        now_ms = self._clock.now_ms()
        behind = [
            (reader, rest)
            for reader, rest in self._readers
            if not rest.lasts(now_ms) and reader.is_behind(heads[reader.partition])
        ]
        while behind:
            for each in list(behind):
                reader, rest = each
                events = rest.read(reader, batch, self._clock.now_ms())
                yield from events
                while reader.has_more_at_hand:
                    yield from reader.read(batch)
                if not events or not reader.is_behind(heads[reader.partition]):
                    behind.remove(each)  # up to date, or deleted meanwhile: the next look shows it

    def error(self) -> DamagedObject | UnreadableObject | None:
        """The error that keeps one of the partitions from being read, if any."""
        return next((rest.error for _, rest in self._readers if rest.error is not None), None)

    def idle_s(self) -> float:
        """How long to wait for new events before a resting partition is due again."""
        now_ms = self._clock.now_ms()
        waits = [rest.until_ms - now_ms for _, rest in self._readers if rest.lasts(now_ms)]
        return min(waits, default=_LONGEST_IDLE_S * 1000) / 1000
