"""Upkeep: sweeping orphans, retention, compaction. Safe beside writers and readers, and several at once.

Each may take long and reports to a `Progress`. Unchanged items count too: the sum is the number of items.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from chronoline.core.errors import StoreUnavailable
from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.log.contract import Chunk, Head, Index, LogTopic, NewChunk, ObjectMissing, Objects
from chronoline.log.events import NewEvent
from chronoline.log.format import MAGIC, DamagedObject, pack_chunk
from chronoline.log.partition_reader import unpack_whole

logger = logging.getLogger(__name__)

_NAMES_AT_ONCE = 500
_CHUNKS_AT_ONCE = 1_000

Progress = Callable[[int], None]
"""Called during the work with the number of further items that are done."""


def unwatched(done: int) -> None:
    """A `Progress` that ignores its calls."""


class Compacted(NamedTuple):
    chunks_before: int
    chunks_after: int


class Upkeep:
    def __init__(
        self, objects: Objects, index: Index, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._objects = objects
        self._index = index
        self._random_bytes = random_bytes

    def sweep(self, *, grace_ms: int, now_ms: int, progress: Progress) -> int:
        """Deletes objects without a commit that are older than the grace time; returns their number.

        The index refuses the object's name first, so that a writer that was frozen before its commit gets an
        error, and writes again. `progress` counts all examined objects, young ones too.
        """
        swept = 0
        listed = self._objects.list()
        while some := list(islice(listed, _NAMES_AT_ONCE)):
            old = [stored.name for stored in some if stored.modified_ms <= now_ms - grace_ms]
            swept += self._sweep(old, now_ms)
            progress(len(some))
        return swept

    def _sweep(self, names: list[str], now_ms: int) -> int:
        orphans = self._index.sweep(names, now_ms=now_ms) if names else []
        self._objects.delete(orphans)
        return len(orphans)

    def collect(self, *, progress: Progress = unwatched) -> int:
        """Deletes objects without chunks; returns their number. `progress` counts them."""
        collected = 0
        while names := self._index.unreferenced(_NAMES_AT_ONCE):
            self._objects.delete(names)
            self._index.forget(names)
            collected += len(names)
            progress(len(names))
        return collected

    def forget(self, *, before_ms: int) -> int:
        """Forgets names without data from before a moment; returns their number.

        The index first refuses to commit names from before it, so that a frozen writer gets an error, and
        writes again.
        """
        self._index.raise_floor(make_id(max(0, before_ms), bytes(ID_ENTROPY_BYTES)))
        forgotten = 0
        while names := self._index.forget_names(_NAMES_AT_ONCE):
            forgotten += names
        return forgotten

    def purge(self, topic_uid: int) -> None:
        """Removes the remains of a deleted topic, and objects that held nothing else."""
        while self._index.purge_topic(topic_uid):
            pass
        self.collect()

    def finish_deletions(self) -> None:
        """Removes the remains of topics whose deletion was interrupted."""
        for topic_uid in self._index.deleted_topics():
            self.purge(topic_uid)

    def retain(
        self,
        topic: LogTopic,
        *,
        max_age_ms: int | None,
        max_bytes: int | None,
        now_ms: int,
        progress: Progress,
    ) -> int:
        """Deletes the oldest chunks beyond an age, or a size of each partition; returns the number of events.

        `progress` counts partitions.
        """
        deleted = 0
        for head in self._index.heads(topic.uid):
            before = head.first_sequence
            if max_age_ms is not None:
                aged = self._index.sequence_at(topic.uid, head.partition, now_ms - max_age_ms)
                # Events appended since the look at the head are young, whatever an index says.
                before = max(before, min(aged, head.next_sequence))
            if max_bytes is not None:
                before = max(before, self._beyond_size(topic, head, max_bytes))
            while gone := self._index.trim(topic.uid, head.partition, before_sequence=before):
                deleted += gone
            progress(1)
        return deleted

    def _beyond_size(self, topic: LogTopic, head: Head, max_bytes: int) -> int:
        """The start of the newest chunks that fit; the newest stays, whatever its size.

        It walks over the deleted chunks a second time instead of keeping them in memory: there may be
        millions.
        """
        size_bytes, newest = 0, head.first_sequence
        for chunk in self._chunks(topic, head.partition, head.first_sequence):
            size_bytes += chunk.length
            newest = chunk.first_sequence
        for chunk in self._chunks(topic, head.partition, head.first_sequence):
            if size_bytes <= max_bytes or chunk.first_sequence >= newest:
                return min(chunk.first_sequence, newest)  # some may be merged or added meanwhile
            size_bytes -= chunk.length
        return newest

    def compact(
        self, topic: LogTopic, *, target_bytes: int, now_ms: Callable[[], int], progress: Progress
    ) -> Compacted:
        """Puts neighbouring small chunks of each partition into large ones, while readers read.

        `progress` counts the chunks that were there, as they are read or left as they are.
        """
        parts = [
            self._compact(topic, partition, target_bytes, now_ms(), progress)
            for partition in range(topic.partitions)
        ]
        return Compacted(*(sum(counts) for counts in zip(*parts, strict=True)))

    def _compact(
        self,
        topic: LogTopic,
        partition: int,
        target_bytes: int,
        now_ms: int,
        progress: Progress,
    ) -> Compacted:
        before = after = 0
        run: list[Chunk] = []
        for chunk in self._chunks(topic, partition, 0):
            before += 1
            full = len(run) == self._index.max_chunks_per_commit
            if run and (full or sum(each.length for each in run) + chunk.length > target_bytes):
                after += self._merge(topic, partition, run, now_ms, progress)
                run = []
            run.append(chunk)
        if run:
            after += self._merge(topic, partition, run, now_ms, progress)
        return Compacted(before, after)

    def _merge(
        self, topic: LogTopic, partition: int, run: list[Chunk], now_ms: int, progress: Progress
    ) -> int:
        if len(run) == 1:
            progress(1)
            return 1
        events = self._read(topic, run, progress)
        if events is None:
            return len(run)
        data = pack_chunk(events, now_ms)
        name = make_id(now_ms, self._random_bytes(ID_ENTROPY_BYTES))
        self._objects.put(name, MAGIC + data)
        new = NewChunk(topic.uid, partition, len(events), len(MAGIC), len(data))
        if self._index.replace(topic.uid, partition, run, name, new):
            return 1
        return len(run)  # another process was faster; our object is an orphan, and swept

    def _read(self, topic: LogTopic, run: list[Chunk], progress: Progress) -> list[NewEvent] | None:
        """The events of neighbouring chunks; None if one of them cannot be had.

        Each chunk counts when it is read, not when all are merged: from a bucket each is a request.
        """
        events: list[NewEvent] = []
        for read, chunk in enumerate(run):
            try:
                events += self._events(topic, chunk)
            except (ObjectMissing, DamagedObject, StoreUnavailable) as error:
                # Another process was faster, or it is unreadable, which its readers report: the rest goes on.
                logger.warning("some chunks of %r are left as they are: %s", topic.name, error)
                progress(len(run) - read)
                return None
            progress(1)
        return events

    def _events(self, topic: LogTopic, chunk: Chunk) -> list[NewEvent]:
        data = self._objects.get(chunk.object_name, chunk.offset, chunk.length)
        return [
            NewEvent(value=event.value, key=event.key, headers=event.headers, ts=event.ts)
            for event in unpack_whole(topic, chunk, data)
        ]

    def _chunks(self, topic: LogTopic, partition: int, sequence: int) -> Iterator[Chunk]:
        while chunks := self._index.chunks(
            topic.uid, partition, from_sequence=sequence, limit=_CHUNKS_AT_ONCE
        ):
            yield from chunks
            sequence = chunks[-1].first_sequence + chunks[-1].events
