"""PostgreSQL, raw and through the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from chronoline.core.topic import Topic
from chronoline.stores.factory import open_store
from chronoline.stores.stripes import STRIPES
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.engines.contract import RAW_COLUMNS, Database, Engine, Place, RawRow
from chronoline_bench.rounds import at_once
from chronoline_bench.session import Advance
from chronoline_bench.workload import ID_DIGITS, Filling

_TABLE = "chronoline.messages"
_TYPES = (
    *("int8", "int4", "int2", "text", "int8", "int8", "int8", "int8"),
    *("text", "bytea", "bytea", "bytea"),
)
_COPY = f"COPY {_TABLE} ({RAW_COLUMNS}) FROM STDIN WITH (FORMAT BINARY)"
_INSERT = f"INSERT INTO {_TABLE} ({RAW_COLUMNS}) VALUES ({', '.join(['%s'] * len(RawRow._fields))})"
# The server makes the rows itself, by the formulas of `Filling`, `bucket_of` and `stripe_of`.
_FILL = f"""
INSERT INTO {_TABLE} (topic, bucket, stripe, id, ts, due, version, producer_group, body)
SELECT %(topic)s, bucket, bucket * {STRIPES} / %(buckets)s, id, due, due, %(now)s, 'default', body
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
CROSS JOIN LATERAL (
    SELECT 'm' || lpad(number::text, {ID_DIGITS}, '0') AS id,
        %(start)s + number * %(stride)s %% %(total)s * %(span)s / %(total)s AS due
) AS named
CROSS JOIN LATERAL (SELECT sha256(convert_to(id, 'UTF8')) AS digest) AS hashed
CROSS JOIN LATERAL (
    SELECT ((get_byte(digest, 0) << 8) | get_byte(digest, 1)) %% %(buckets)s AS bucket
) AS placed
CROSS JOIN (SELECT decode(repeat('00', %(body_bytes)s), 'hex') AS body) AS same
"""
_FILL_ROWS = 20_000
_FILLERS = 2
_MOST_BUFFERS_MB = 1024

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresDatabase(Database):
    """One database of the server."""

    bulk_name = "COPY"
    settling = "VACUUM ANALYZE and a checkpoint"

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._name = name
        self.url = server.create_database(name)
        self.store = open_store(self.url)
        self._raw = self._connect()

    def insert_many(self, rows: Sequence[RawRow]) -> None:
        copy_rows(self._raw, rows)

    def insert_one(self, row: RawRow) -> None:
        self._raw.execute(_INSERT.encode(), row)

    def fill(self, topic: Topic, filling: Filling, advance: Advance) -> None:
        fill_table(self.url, topic, filling, advance)

    def settle(self) -> None:
        self._raw.execute(f"VACUUM (ANALYZE) {_TABLE}".encode())
        self._raw.execute("CHECKPOINT")

    def count(self, topic: Topic) -> int:
        return self._number(f"SELECT count(*) FROM {_TABLE} WHERE topic = %s", topic.uid)

    def bytes_on_disk(self) -> int:
        return self._number("SELECT pg_total_relation_size(%s)", _TABLE)

    @contextmanager
    def keeping_bodies(self, place: Place) -> Iterator[None]:
        """PostgreSQL keeps a body inline only if its row fits into a page; larger ones always lie apart."""
        self._store_bodies("MAIN" if place == "inline" else "EXTERNAL")
        try:
            yield
        finally:
            self._store_bodies("EXTERNAL")

    def close(self) -> None:
        self._raw.close()
        self.store.close()
        drop_database(self._server, self._name)

    def _store_bodies(self, storage: str) -> None:
        self._raw.execute(f"ALTER TABLE {_TABLE} ALTER COLUMN body SET STORAGE {storage}".encode())

    def _connect(self) -> Connection:
        return psycopg.connect(self.url, autocommit=True)

    def _number(self, statement: str, *values: object) -> int:
        row = self._raw.execute(statement.encode(), values).fetchone()
        return int(row[0]) if row else 0


class PostgresEngine(Engine):
    """A server started for the run, with PostgreSQL's default settings except for its memory."""

    name = "postgresql"

    def __init__(self, folder: Path) -> None:
        self.server = PostgresServer(folder / "postgresql")
        self.server.start()
        try:
            with psycopg.connect(self.server.url(), autocommit=True) as connection:
                setting = f"ALTER SYSTEM SET shared_buffers = '{shared_buffers_mb()}MB'"
                connection.execute(setting.encode())
            self.server.stop()  # the setting needs a restart
            self.server.start()
        except BaseException:
            self.server.stop()
            raise

    def open(self, name: str) -> PostgresDatabase:
        return PostgresDatabase(self.server, name)

    def close(self) -> None:
        self.server.stop()


def copy_rows(connection: Connection, rows: Sequence[RawRow]) -> None:
    """Adds rows with one COPY."""
    with connection.cursor() as cursor, cursor.copy(_COPY.encode()) as copy:
        copy.set_types(_TYPES)
        for row in rows:
            copy.write_row(row)


def fill_table(url: str, topic: Topic, filling: Filling, advance: Advance) -> None:
    """Adds many waiting messages, by some connections at once."""
    starts = iter(range(0, filling.total, _FILL_ROWS))
    lock = threading.Lock()

    def work() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            # These rows need not survive a crash, and a checkpoint follows.
            connection.execute("SET synchronous_commit = off")
            while True:
                with lock:
                    start = next(starts, None)
                if start is None:
                    return
                last = min(start + _FILL_ROWS, filling.total) - 1
                connection.execute(_FILL.encode(), _values(topic, filling, start, last))
                advance(last - start + 1)

    at_once([work] * _FILLERS)


def drop_database(server: PostgresServer, name: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def shared_buffers_mb() -> int:
    """Returns a quarter of the machine's memory, as PostgreSQL's manual advises, and at most 1 GB."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_MOST_BUFFERS_MB, memory_bytes // 4 // 1024**2)


def _values(topic: Topic, filling: Filling, first: int, last: int) -> dict[str, object]:
    return {
        "topic": topic.uid,
        "buckets": topic.settings.buckets,
        "now": filling.now_ms,
        "start": filling.start_ms,
        "span": filling.span_ms,
        "stride": filling.stride,
        "total": filling.total,
        "body_bytes": filling.body_bytes,
        "first": first,
        "last": last,
    }
