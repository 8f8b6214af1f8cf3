"""A log with one object per event, after a published algorithm: the reference of the bench `log`.

A producer takes a sequence number for the event's partition, in an index transaction of its own, and then
writes the event as an object, `events/{partition}/{sequence}`. A consumer locks a partition, reads its
objects one by one, and after each sets its sequence number by a conditional write, which renews the lock. A
number without an event, which a dead producer leaves behind, is skipped.

The index is a SQLite file and the objects are files, opened and flushed by the same classes as the log's.
The algorithm does more: here the partitioner is a constant, there are no notifications, and a lock is taken
once for a whole partition, not for every twenty events.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chronoline.databases.queries import load_queries
from chronoline.databases.sqlite import SqliteDatabase
from chronoline.log.contract import ObjectMissing
from chronoline.log.objects.local import LocalObjects
from chronoline.log.partitioner import partition_id
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.service import Closable

_PACKAGE = "chronoline_bench.log"
_QUERIES = load_queries(_PACKAGE)
_LOCK_MS = 5_000
_MOST_BYTES = 64 * 1024
_BUSY_MS = 60_000
"""The most time that a thread waits for its turn to write, behind many others."""


class Item(NamedTuple):
    """An event that a consumer read."""

    partition: int
    sequence: int
    value: bytes


class ObjectPerEvent(Closable):
    """One log without topics. Thread-safe."""

    def __init__(self, folder: Path, *, partitions: int, clock: Clock | None = None) -> None:
        self._objects = LocalObjects(folder / "events")
        self._database = SqliteDatabase(
            str(folder / "index.db"), package=_PACKAGE, busy_ms=_BUSY_MS
        )
        self._clock = clock or SystemClock()
        self.partitions = partitions
        with self._database.writing() as connection:
            for partition in range(partitions):
                connection.execute(_QUERIES["insert_partition"], {"partition": partition})

    def append(self, key: bytes, value: bytes) -> Item:
        """Takes the next sequence number of the key's partition, then writes the event.

        A producer that dies in between leaves a number without an event.
        """
        partition = partition_id(key, self.partitions)
        ((sequence,),) = self._write("reserve", partition=partition)
        self._objects.put(_name(partition, sequence), value)
        return Item(partition, sequence, value)

    def read(self, consumer: str) -> Iterator[Item]:
        """Yields all unread events, one partition after the other."""
        for partition in range(self.partitions):
            yield from self.read_partition(consumer, partition)

    def read_partition(
        self, consumer: str, partition: int, *, thread: str = "main"
    ) -> Generator[Item, None, None]:
        """Yields the unread events of one partition; none if another thread reads it."""
        where = {"consumer": consumer, "partition": partition, "thread": thread}
        now_ms = self._clock.now_ms()
        activated = self._write("activate", now=now_ms, expires=now_ms + _LOCK_MS, **where)
        if not activated:
            return
        ((sequence,),) = activated
        try:
            while True:
                try:
                    value = self._objects.get(_name(partition, sequence), 0, _MOST_BYTES)
                    yield Item(partition, sequence, value)
                except ObjectMissing:
                    if sequence >= self._end(partition):
                        return
                sequence += 1
                expires_ms = self._clock.now_ms() + _LOCK_MS
                self._write("progress", sequence=sequence, expires=expires_ms, **where)
        finally:
            self._write("deactivate", **where)

    def close(self) -> None:
        self._database.close()
        self._objects.close()

    def _end(self, partition: int) -> int:
        with self._database.reading() as connection:
            row = connection.execute(_QUERIES["end"], {"partition": partition}).fetchone()
        return int(row[0])

    def _write(self, query: str, **values: Any) -> list[Any]:
        with self._database.writing() as connection:
            return connection.execute(_QUERIES[query], values).fetchall()


def _name(partition: int, sequence: int) -> str:
    """The name's first five characters are its folder: one for each partition."""
    return f"{partition:05}-{sequence}"
