"""Appending once under a key, for whoever may have to do it again without knowing whether it was done.

The name of an object is the key of its commit, and the index answers a name that was committed as it was
then. So the object is named by the key, and a second append of the same key is answered by the first one.

What lies under the name need not be ours: an earlier try may have died after it had put its object, before
its commit, or the sweeper may have refused the name meanwhile. Then we refuse the name ourselves, as the
sweeper does, and ask for its commit: if it was committed before, the index says so, and nothing is added;
else nobody can commit it any more, and we go on to the next name of the same key. A later name is tried
only when all before it are refused for good, so at most one of them is ever committed, also when two do it
at the same time.

Bytes never repeat, because each object carries some random ones: an object that an earlier try has written
but not flushed must not be taken for ours. It also carries how many events it has, so that a key that comes
again for other events is noticed (while its object is there: compaction drops it, and what was committed
stays known).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from chronoline.clock import Clock
from chronoline.core.errors import ChronolineError, StoreError, StoreUnavailable
from chronoline.log.appending import Placed, Placement, Writer
from chronoline.log.contract import (
    Index,
    LogTopic,
    NewChunk,
    ObjectMissing,
    Objects,
    ObjectSwept,
)
from chronoline.log.events import NewEvent
from chronoline.log.format import MAGIC, join_chunks, pack_chunk

_TRIES = 20
_COUNT = struct.Struct(">Q")
_NONCE_BYTES = 8
_PREFIX = "once-"
"""Also the folder, since a name here has no time in it."""


class KeyReused(ChronolineError):
    """The key was used before, for other events; nothing was appended."""


class PackedChunk(NamedTuple):
    """Events of one partition as they lie in objects. It can travel between processes."""

    partition: int
    events: int
    data: bytes


def pack(
    topic: LogTopic, events: Iterable[NewEvent], *, spread_from: int, now_ms: int
) -> list[PackedChunk]:
    """Events by partition. Those without a key are spread in turn, beginning with a partition."""
    placement = Placement(spread_from)
    groups: dict[int, list[NewEvent]] = {}
    for event in events:
        placed: Placed = placement.place(topic, event)
        groups.setdefault(placed.partition, []).append(event)
    return [
        PackedChunk(partition, len(group), pack_chunk(group, now_ms))
        for partition, group in groups.items()
    ]


class OnceWriter:
    """Makes packed events durable, each key once."""

    def __init__(
        self,
        objects: Objects,
        index: Index,
        writer: Writer,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._objects = objects
        self._index = index
        self._writer = writer
        self._clock = clock
        self._random_bytes = random_bytes

    def write(self, topic: LogTopic, key: str, packed: Iterable[PackedChunk]) -> None:
        """Appends in the order that is given, all in one commit, if the index takes so many partitions.

        Else it is one commit for every so many partitions, each once. Raises `KeyReused`.
        """
        groups: dict[int, dict[int, list[PackedChunk]]] = {}
        for chunk in packed:
            group = groups.setdefault(chunk.partition // self._index.max_chunks_per_commit, {})
            group.setdefault(chunk.partition, []).append(chunk)
        for number in sorted(groups):
            self._write(topic, f"{topic.uid}/{number}/{key}", groups[number])

    def _write(self, topic: LogTopic, key: str, group: dict[int, list[PackedChunk]]) -> None:
        total = sum(chunk.events for chunks in group.values() for chunk in chunks)
        parts = [MAGIC, _COUNT.pack(total), self._random_bytes(_NONCE_BYTES)]
        place = sum(map(len, parts))
        new: list[NewChunk] = []
        for partition in sorted(group):
            events = sum(chunk.events for chunk in group[partition])
            data = join_chunks([chunk.data for chunk in group[partition]])
            new.append(NewChunk(topic.uid, partition, events, place, len(data)))
            parts.append(data)
            place += len(data)
        self._commit(key, b"".join(parts), new, total)

    def _commit(self, key: str, data: bytes, chunks: Sequence[NewChunk], total: int) -> None:
        for number in range(_TRIES):
            name = _name(key, number)
            others = self._put(name, data)
            try:
                self._writer.settle(name, chunks)
            except ObjectSwept:
                continue
            if others:
                self._check_same(name, total)
            return
        raise StoreUnavailable(
            "this append was refused each time: the sweeper is faster, or somebody does the same"
        )

    def _put(self, name: str, data: bytes) -> bool:
        """Puts an object; true if another lies there, of which no commit can follow any more."""
        try:
            self._objects.put(name, data)
        except StoreUnavailable:
            raise
        except StoreError:  # other bytes lie there
            self._index.sweep([name], now_ms=self._clock.now_ms())
            return True
        return False

    def _check_same(self, name: str, total: int) -> None:
        try:
            found = self._objects.get(name, len(MAGIC), _COUNT.size)
        except ObjectMissing:
            return  # compacted meanwhile
        (before,) = _COUNT.unpack(found)
        if before != total:
            raise KeyReused(
                f"the same key was used before to append {before} events, and now comes with {total}; "
                "nothing was appended"
            )


def _name(key: str, number: int) -> str:
    return _PREFIX + hashlib.sha256(f"{number}/{key}".encode()).hexdigest()[:40]
