"""SQLite, raw and through the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from chronoline.core.limits import MAX_BODY_BYTES
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.stores.factory import open_store
from chronoline_bench.engines.contract import (
    RAW_COLUMNS,
    Database,
    Engine,
    Place,
    RawRow,
    raw_row,
)
from chronoline_bench.session import Advance
from chronoline_bench.workload import Filling

PRAGMAS = {
    "journal_mode": "WAL",
    "synchronous": "FULL",
    "temp_store": "MEMORY",
    "cache_size": "-65536",
}
"""The settings of the store's writer; a test compares them."""
_CHECKPOINT_PAGES = 2_000
"""8 MB, as in the store, which makes its checkpoints itself."""
_BORDER = "chronoline.stores.sqlite.engine.INLINE_BODY_BYTES"
_INSERT = f"INSERT INTO messages ({RAW_COLUMNS}) VALUES ({', '.join('?' * len(RawRow._fields))})"
_FILL_ROWS = 20_000


class SqliteDatabase(Database):
    """One file."""

    bulk_name = "raw executemany"
    settling = "log checkpointed"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"
        self.store = open_store(self.url)
        self._raw = connect(path)

    def insert_many(self, rows: Sequence[RawRow]) -> None:
        self._raw.execute("BEGIN IMMEDIATE")
        self._raw.executemany(_INSERT, rows)
        self._raw.execute("COMMIT")

    def insert_one(self, row: RawRow) -> None:
        self._raw.execute(_INSERT, row)

    def fill(self, topic: Topic, filling: Filling, advance: Advance) -> None:
        body = bytes(filling.body_bytes)
        self._raw.execute("PRAGMA synchronous=OFF")
        for start in range(0, filling.total, _FILL_ROWS):
            numbers = range(start, min(start + _FILL_ROWS, filling.total))
            messages = (
                NewMessage(id=filling.id(number), due=filling.due(number), body=body)
                for number in numbers
            )
            self.insert_many([raw_row(topic, message, filling.now_ms) for message in messages])
            advance(len(numbers))
        self._raw.execute(f"PRAGMA synchronous={PRAGMAS['synchronous']}")

    def settle(self) -> None:
        self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def count(self, topic: Topic) -> int:
        statement = "SELECT count(*) FROM messages WHERE topic = ?"
        value: int = self._raw.execute(statement, [topic.uid]).fetchone()[0]
        return value

    def bytes_on_disk(self) -> int:
        self.settle()
        return self._path.stat().st_size

    @contextmanager
    def keeping_bodies(self, place: Place) -> Iterator[None]:
        with mock.patch(_BORDER, MAX_BODY_BYTES if place == "inline" else 0):
            yield

    def close(self) -> None:
        self._raw.close()
        self.store.close()
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()


class SqliteEngine(Engine):
    """Files in a folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> SqliteDatabase:
        return SqliteDatabase(self._folder / f"{name}.db")

    def close(self) -> None:
        pass


def connect(path: Path) -> sqlite3.Connection:
    """Opens a raw connection with the settings of the store's."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name}={value}")
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    return connection
