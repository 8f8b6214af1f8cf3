"""Reading a partition: from the index to chunks, from chunks to events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chronoline.log.contract import Chunk, Index, LogTopic, ObjectMissing, Objects
from chronoline.log.events import Event
from chronoline.log.format import DamagedObject, unpack_chunk

_CHUNKS_AT_ONCE = 256


class PartitionReader:
    """Reads one partition in sequence. It holds no lock and keeps no progress: its caller does."""

    def __init__(
        self, objects: Objects, index: Index, topic: LogTopic, partition: int, sequence: int
    ) -> None:
        self._objects = objects
        self._index = index
        self._topic = topic
        self.partition = partition
        self.sequence = sequence
        """The next event to read."""

    def read(self, limit: int) -> list[Event]:
        """The next events, at most so many; none if it is up to date.

        What retention has dropped is passed over. An object that is missing because it was compacted
        meanwhile is looked up again; one that is really missing, or damaged, raises `DamagedObject`.
        """
        events: list[Event] = []
        while len(events) < limit:
            chunks = self._index.chunks(
                self._topic.uid,
                self.partition,
                from_sequence=self.sequence,
                limit=min(_CHUNKS_AT_ONCE, limit - len(events)),
            )
            if not chunks:
                break
            for event in self._events(chunks, limit - len(events)):
                events.append(event)
                self.sequence = event.sequence + 1
        return events

    def _events(self, chunks: list[Chunk], limit: int) -> Iterator[Event]:
        for chunk in chunks:
            if limit <= 0:
                return
            try:
                data = self._objects.get(chunk.object_name, chunk.offset, chunk.length)
            except ObjectMissing as error:
                if chunk in self._look_again(chunk):
                    raise DamagedObject(
                        f"object {chunk.object_name!r} is missing: events of {self._topic.name!r}, "
                        f"partition {self.partition}, from sequence {chunk.first_sequence}"
                    ) from error
                return
            for event in self._unpack(chunk, data):
                if event.sequence >= self.sequence and limit > 0:
                    limit -= 1
                    yield event

    def _look_again(self, chunk: Chunk) -> list[Chunk]:
        return self._index.chunks(
            self._topic.uid, self.partition, from_sequence=chunk.first_sequence, limit=1
        )

    def _unpack(self, chunk: Chunk, data: bytes) -> list[Event]:
        return unpack_chunk(
            data,
            topic=self._topic.name,
            partition=self.partition,
            first_sequence=chunk.first_sequence,
            name=chunk.object_name,
        )


class LoneReader:
    """Reads partitions in turn for nobody but its caller: it takes no hold and notes no progress."""

    def __init__(
        self, objects: Objects, index: Index, topic: LogTopic, starts: Mapping[int, int]
    ) -> None:
        self._index = index
        self._topic = topic
        self._readers = [
            PartitionReader(objects, index, topic, partition, sequence)
            for partition, sequence in starts.items()
        ]

    def read_on(self, batch: int) -> Iterator[Event]:
        """Everything that is there now: one look at the ends of the partitions, then those that have more."""
        ends = {head.partition: head.next_sequence for head in self._index.heads(self._topic.uid)}
        behind = [reader for reader in self._readers if reader.sequence < ends[reader.partition]]
        while behind:
            for reader in behind:
                yield from reader.read(batch)
            behind = [reader for reader in behind if reader.sequence < ends[reader.partition]]
