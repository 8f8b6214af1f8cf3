"""Upkeep: sweeping orphans, retention, compaction. Safe beside writers and readers, and several at once.

All of it may take long, so each says by a `Progress` how far it is. What is left as it is counts too: the
sum is what there was to look at.
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
"""Told, while work goes on, that so many more are done."""


def unwatched(done: int) -> None:
    """The `Progress` of work that nobody watches."""


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
        """Deletes objects that no commit refers to and that are older than a while; says how many.

        The index refuses the object's name first, so a writer that was frozen before its commit is
        told, and writes again. `progress` counts the objects that were looked at, young ones too.
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
        """Deletes objects in which no chunk lies any more; says how many. `progress` counts them."""
        collected = 0
        while names := self._index.unreferenced(_NAMES_AT_ONCE):
            self._objects.delete(names)
            self._index.forget(names)
            collected += len(names)
            progress(len(names))
        return collected

    def forget(self, *, before_ms: int) -> int:
        """Forgets names from before a moment under which nothing lies any more; says how many.

        The index refuses to commit names from before it first, so a writer that was frozen is told, however
        long that was, and writes again.
        """
        self._index.raise_floor(make_id(max(0, before_ms), bytes(ID_ENTROPY_BYTES)))
        forgotten = 0
        while names := self._index.forget_names(_NAMES_AT_ONCE):
            forgotten += names
        return forgotten

    def purge(self, topic_uid: int) -> None:
        """Removes what is left of a deleted topic, and the objects in which nothing else lies."""
        while self._index.purge_topic(topic_uid):
            pass
        self.collect()

    def finish_deletions(self) -> None:
        """Removes what is left of topics whose deletion was broken off."""
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
        """Drops the oldest chunks beyond an age, or beyond a size of each partition; says how many events.

        `progress` counts partitions.
        """
        dropped = 0
        for head in self._index.heads(topic.uid):
            before = head.first_sequence
            if max_age_ms is not None:
                aged = self._index.sequence_at(topic.uid, head.partition, now_ms - max_age_ms)
                # What was appended since we looked at the head is young, whatever an index says.
                before = max(before, min(aged, head.next_sequence))
            if max_bytes is not None:
                before = max(before, self._beyond_size(topic, head, max_bytes))
            while gone := self._index.trim(topic.uid, head.partition, before_sequence=before):
                dropped += gone
            progress(1)
        return dropped

    def _beyond_size(self, topic: LogTopic, head: Head, max_bytes: int) -> int:
        """Where the newest chunks begin that fit; the newest stays, however large.

        It walks over what goes a second time rather than remember it: there may be millions.
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
        return len(run)  # someone was faster; what we wrote is an orphan, and swept

    def _read(self, topic: LogTopic, run: list[Chunk], progress: Progress) -> list[NewEvent] | None:
        """The events of neighbouring chunks; None if one of them cannot be had.

        Each chunk counts when it is read, not when all are merged: from a bucket each is a request.
        """
        events: list[NewEvent] = []
        for read, chunk in enumerate(run):
            try:
                events += self._events(topic, chunk)
            except (ObjectMissing, DamagedObject, StoreUnavailable) as error:
                # Another was faster, or it cannot be read, which its readers report: the rest goes on.
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
