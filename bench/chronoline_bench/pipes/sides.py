"""What stands between the two topics: our pipe, or the published algorithm, with its own database."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from chronoline.core.closing import Closing
from chronoline.core.topic import Topic
from chronoline.databases.queries import load_queries
from chronoline.pipe.timeline import topic_settings
from chronoline.runtime.clock import SystemClock
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.filling import Filling
from chronoline_bench.pipes.child import Child
from chronoline_bench.pipes.pipe_node import PipeWork
from chronoline_bench.published import NodeSettings, create_table
from chronoline_bench.show import Advance

_PUBLISHED = "chronoline_bench.published"
_PIPE = "chronoline_bench.pipes.pipe_node"
FILL_BYTES = 64
_STORED = b"SELECT count(*) FROM chronoline.messages WHERE due >= %(from)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Where a node reads and writes."""

    bootstrap: str
    input: str
    output: str


class Side(Closing):
    """A database and the nodes that work on it."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, topics: Topics, log_path: Path) -> Child:
        """A node; it says `ready` when it is."""

    @abstractmethod
    def stored(self, from_ms: int) -> int:
        """How many messages there are that are due from then on, as the database counts its rows."""


class PipeSide(Side):
    """Chronoline's pipe, on Spark."""

    name = "pipe"

    def __init__(
        self, engine: PostgresEngine, name: str, *, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.topic = name
        """The timeline that the pipe makes."""
        self.database = engine.open(name)
        self._settings = dict(settings or {})
        self._closed = False

    def start(self, topics: Topics, log_path: Path) -> Child:
        return Child(_PIPE, self._work(topics).to_json(), log_path=log_path)

    def stored(self, from_ms: int) -> int:
        return _number(self.database.url, _STORED, {"from": from_ms})

    def fill(self, count: int, start_ms: int, span_ms: int, advance: Advance) -> Topic:
        """Waiting messages, straight into the table, on the timeline that the pipe will find."""
        nowhere = Topics(bootstrap="127.0.0.1:9", input="in", output="out")
        settings = topic_settings(self._work(nowhere).pipe_settings())
        now_ms = SystemClock().now_ms()
        topic = self.database.store.ensure_topic(self.topic, settings, now_ms=now_ms)
        filling = Filling(
            total=count, start_ms=start_ms, span_ms=span_ms, now_ms=now_ms, body_bytes=FILL_BYTES
        )
        self.database.fill(topic, filling, advance)
        self.database.settle()
        return topic

    def _work(self, topics: Topics) -> PipeWork:
        return PipeWork(
            name=self.topic, store=self.database.url, settings=self._settings, **asdict(topics)
        )

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.database.close()


class PublishedSide(Side):
    """The published algorithm."""

    name = "published"

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._name = name
        self._url = server.create_database(name)
        create_table(self._url)

    def start(self, topics: Topics, log_path: Path) -> Child:
        settings = NodeSettings(
            database=self._url,
            bootstrap=topics.bootstrap,
            input_topic=topics.input,
            output_topic=topics.output,
        )
        return Child(_PUBLISHED, json.dumps(asdict(settings)), log_path=log_path)

    def stored(self, from_ms: int) -> int:
        return _number(self._url, _query("count"), {"from": _moment(from_ms)})

    def fill(self, first: int, count: int, due_ms: int) -> None:
        """Waiting messages with these numbers, all due at one moment, straight into the table."""
        values = {
            "prefix": f"{self._name}-",
            "deadline": _moment(due_ms),
            "first": first,
            "last": first + count - 1,
        }
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(_query("fill"), values)

    def close(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)'.encode())


def _query(name: str) -> bytes:
    return load_queries(_PUBLISHED)[name].encode()


def _number(url: str, query: bytes, values: Mapping[str, object]) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query, values).fetchone()
    return int(row[0]) if row else 0


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
