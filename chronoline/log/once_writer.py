"""Appends once under a key, for callers that may have to repeat an append of unknown outcome.

The name of an object is the key of its commit, and the index answers a repeated commit of a name as the
first. So the object is named by the key, and a second append of the same key gets the answer of the first
one.

The object under the name need not be ours: an earlier try may have died after its put and before its
commit, or the sweeper may have refused the name meanwhile. Then we refuse the name ourselves, as the
sweeper does, and ask for its commit: if it was committed before, the index says so, and nothing is added;
else nobody can commit it any more, and we go on to the next name of the same key. A later name is tried
only when all before it are refused for good, so at most one of them is ever committed, also when two do it
at the same time.

Bytes never repeat, because each object carries some random ones: an object that an earlier try has written
but not flushed must not be taken for ours. It also carries how many events it has, so that a key that comes
again for other events is noticed (while its object is there: compaction deletes it, and what was committed
stays known).

A key stays known while its topic is there, since it may come again at any time. A source that appends under
growing numbers needs less: once number n is closed, everything before n - `KEPT_NUMBERS` is settled, and a
key from there adds nothing, whether or not the index knows it. So its names carry the source and the
number, the index keeps one floor for each source, and raises it in the commit that closes a number. Names
below it can be forgotten.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from chronoline.core.errors import ChronolineError, StoreError, StoreUnavailable
from chronoline.log.appender import Appender, Placed, Placement
from chronoline.log.contract import (
    Index,
    LogTopic,
    NewChunk,
    ObjectMissing,
    Objects,
    ObjectSwept,
    ObjectTooOld,
    Source,
)
from chronoline.log.events import NewEvent
from chronoline.log.format import MAGIC, join_chunks, pack_chunk
from chronoline.runtime.backoff import Backoff
from chronoline.runtime.clock import Clock

_TRIES = 20
_BACKOFF = Backoff(0.002, 0.2, spread=1.0)
_COUNT = struct.Struct(">Q")
_NONCE_BYTES = 8
_PREFIX = "once-"
"""Also the folder, since a name here has no time in it."""
_HASH_CHARACTERS = 24
KEPT_NUMBERS = 1_000
MAX_NUMBER = (1 << 63) - 1

logger = logging.getLogger(__name__)


class KeyReused(ChronolineError):
    """The key was used before, for other events; nothing was appended."""


class Numbered(NamedTuple):
    """The place of a key in a source that appends under growing numbers."""

    source: str
    number: int
    closes: bool = True
    """Whether it is the last key of its number: the source never begins a lower one anew."""
    kept: int = KEPT_NUMBERS
    """The count of numbers whose keys stay known, including the closed one."""


class PackedChunk(NamedTuple):
    """Events of one partition in the format of objects. It can travel between processes."""

    partition: int
    events: int
    data: bytes


def pack(
    topic: LogTopic, events: Iterable[NewEvent], *, spread_from: int, now_ms: int
) -> list[PackedChunk]:
    """Packs events by partition. Events without a key are spread in turn, beginning with a partition."""
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
        writer: Appender,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._objects = objects
        self._index = index
        self._writer = writer
        self._clock = clock
        self._random_bytes = random_bytes

    def write(
        self,
        topic: LogTopic,
        key: str,
        packed: Iterable[PackedChunk],
        numbered: Numbered | None = None,
    ) -> None:
        """Appends in the given order, all in one commit, if the index takes that many partitions.

        Otherwise it makes several commits, each once. Raises `KeyReused`.
        """
        groups: dict[int, dict[int, list[PackedChunk]]] = {}
        for chunk in packed:
            group = groups.setdefault(chunk.partition // self._index.max_chunks_per_commit, {})
            group.setdefault(chunk.partition, []).append(chunk)
        for number in sorted(groups):
            place = f"{topic.uid}/{number}"
            names = _Names(f"{place}/{key}", _place(topic, place, numbered))
            self._write(topic, names, groups[number])

    def _write(self, topic: LogTopic, names: _Names, group: dict[int, list[PackedChunk]]) -> None:
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
        if names.numbered is None or not self._has_old_name(names.key, total):
            self._commit(names, b"".join(parts), new, total)

    def _has_old_name(self, key: str, total: int) -> bool:
        """Whether a key was used before its source had numbers: its name says nothing of them then."""
        for number in range(_TRIES):
            committed = self._index.was_committed(_name(key, number))
            if committed:
                self._check_same(_name(key, number), total)
            if committed is not False:  # a name that was refused is followed by the next
                return committed is not None
        return False

    def _commit(self, names: _Names, data: bytes, chunks: Sequence[NewChunk], total: int) -> None:
        for number in range(_TRIES):
            name = names.at(number)
            others = self._put(name, data)
            try:
                self._writer.settle(name, chunks, names.source)
            except ObjectSwept:
                # Two callers at the same pace would refuse each other's names each time.
                time.sleep(_BACKOFF.wait(number + 1, self._random_bytes(1)[0] / 255))
                continue
            except ObjectTooOld:
                logger.info("a key is older than the numbers that are kept: nothing is added")
                return
            if others:
                self._check_same(name, total)
            return
        raise StoreUnavailable(
            "this append was refused each time: the sweeper is faster, or another process uses the key"
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


class _Names(NamedTuple):
    """The names that a key's object may have, one after the other."""

    key: str
    numbered: tuple[Source, str] | None
    """Its source, and what its names begin with."""

    @property
    def source(self) -> Source | None:
        return self.numbered[0] if self.numbered else None

    def at(self, number: int) -> str:
        if self.numbered is None:
            return _name(self.key, number)
        return self.numbered[1] + _hash(f"{number}/{self.key}")


def _place(topic: LogTopic, place: str, numbered: Numbered | None) -> tuple[Source, str] | None:
    if numbered is None:
        return None
    prefix = f"{_PREFIX}{_hash(f'{place}/{numbered.source}')}-"
    settled = max(0, numbered.number + 1 - numbered.kept) if numbered.closes else 0
    source = Source(topic.uid, prefix, f"{prefix}{settled:016x}")
    return source, f"{prefix}{numbered.number:016x}-"


def _name(key: str, number: int) -> str:
    return _PREFIX + hashlib.sha256(f"{number}/{key}".encode()).hexdigest()[:40]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
