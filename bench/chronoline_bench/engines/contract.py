"""The contract of the engines in a bench.

The store itself makes the raw table, in a separate database, so the columns, indexes and settings are the
same by construction.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

from chronoline.core.ids import bucket_of
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.service import Closable
from chronoline.stores.contract import Store
from chronoline.stores.stripes import stripe_of
from chronoline_bench.rounds import Stopwatch
from chronoline_bench.session import Advance
from chronoline_bench.workload import Filling, in_batches, make_waiting

Place = Literal["inline", "apart"]


class RawRow(NamedTuple):
    """The row that a create writes, ready for the driver."""

    topic: int
    bucket: int
    stripe: int
    id: str
    ts: int
    due: int
    version: int
    expires: int | None
    producer_group: str
    key: bytes | None
    headers: bytes | None
    body: bytes | None


RAW_COLUMNS = ", ".join(RawRow._fields)


def raw_row(topic: Topic, message: NewMessage, now_ms: int) -> RawRow:
    """Returns a message without headers as a row."""
    buckets = topic.settings.buckets
    bucket = bucket_of(message.id, buckets)
    return RawRow(
        topic=topic.uid,
        bucket=bucket,
        stripe=stripe_of(bucket, buckets),
        id=message.id,
        ts=message.due,
        due=message.due,
        version=now_ms,
        expires=message.expires,
        producer_group=message.producer_group,
        key=message.key,
        headers=None,
        body=message.body,
    )


class Database(Closable):
    """One database with the store's tables: the store on it, and raw access to the same tables."""

    url: str
    store: Store
    bulk_name: str
    """A label for `insert_many`."""
    settling: str
    """A label for `settle`."""

    @abstractmethod
    def insert_many(self, rows: Sequence[RawRow]) -> None:
        """Adds rows in the engine's fastest way, in one commit."""

    @abstractmethod
    def insert_one(self, row: RawRow) -> None:
        """Adds a row in its own commit."""

    @abstractmethod
    def fill(self, topic: Topic, filling: Filling, advance: Advance) -> None:
        """Adds many waiting messages directly to the table, as fast as possible."""

    @abstractmethod
    def settle(self) -> None:
        """Does the engine's background work now: a checkpoint, a vacuum."""

    @abstractmethod
    def count(self, topic: Topic) -> int:
        """Counts a topic's rows."""

    @abstractmethod
    def bytes_on_disk(self) -> int:
        """Returns the size of the messages with their indexes and bodies."""

    @abstractmethod
    def keeping_bodies(self, place: Place) -> AbstractContextManager[None]:
        """Within the block the store keeps new bodies of any size in this place."""

    @abstractmethod
    def close(self) -> None:
        """Removes the database, to free its disk space."""


class Engine(Closable):
    """Makes databases on a server or in a folder."""

    name: str

    @abstractmethod
    def open(self, name: str) -> Database:
        """Makes an empty database of this name."""

    @abstractmethod
    def close(self) -> None: ...


def insert_batches(database: Database, topic: Topic, messages: int, batch: int) -> float:
    """Inserts waiting messages in the engine's fastest way; returns rows per second."""
    now_ms = SystemClock().now_ms()
    batches = [
        [raw_row(topic, message, now_ms) for message in some]
        for some in in_batches(make_waiting(messages, now_ms), batch)
    ]
    watch = Stopwatch()
    gc.collect()
    for rows in batches:
        with watch.running():
            database.insert_many(rows)
    return messages / watch.seconds
