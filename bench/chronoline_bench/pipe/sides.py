"""The sides between two topics, each with its database: Chronoline's pipe, and the polling queue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import psycopg

from chronoline.core.topic import Topic
from chronoline.pipe.settings import topic_settings
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.service import Closable
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.engines.postgres import PostgresEngine, drop_database
from chronoline_bench.pipe import node, polling_queue
from chronoline_bench.pipe.polling_queue import QUERIES, create_table
from chronoline_bench.session import Advance
from chronoline_bench.workload import Filling

FILL_BYTES = 64
_STORED = b"SELECT count(*) FROM chronoline.messages WHERE due >= %(from)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that a node reads and writes."""

    bootstrap: str
    input: str
    output: str


class Side(Closable):
    """A database, and the agent whose command `serve` runs a node on it."""

    agent: ModuleType

    @abstractmethod
    def arguments(self, topics: Topics) -> dict[str, Any]:
        """Returns the arguments of `serve`."""

    @abstractmethod
    def stored(self, from_ms: int) -> int:
        """Counts the rows that are due from a moment on."""


class PipeSide(Side):
    """Chronoline's pipe, on Spark."""

    agent = node

    def __init__(
        self, engine: PostgresEngine, name: str, *, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.topic = name
        """The timeline that the pipe makes."""
        self.database = engine.open(name)
        self._settings = dict(settings or {})
        self._closed = False

    def arguments(self, topics: Topics) -> dict[str, Any]:
        own = {"name": self.topic, "store": self.database.url, "settings": self._settings}
        return {**asdict(topics), **own}

    def stored(self, from_ms: int) -> int:
        return _number(self.database.url, _STORED, {"from": from_ms})

    def fill(self, count: int, start_ms: int, span_ms: int, advance: Advance) -> Topic:
        """Writes waiting messages directly into the table, on the timeline of the pipe."""
        nowhere = Topics(bootstrap="127.0.0.1:9", input="in", output="out")
        settings = topic_settings(node.pipe_settings(**self.arguments(nowhere)))
        now_ms = SystemClock().now_ms()
        topic = self.database.store.ensure_topic(self.topic, settings, now_ms=now_ms)
        filling = Filling(
            total=count, start_ms=start_ms, span_ms=span_ms, now_ms=now_ms, body_bytes=FILL_BYTES
        )
        self.database.fill(topic, filling, advance)
        self.database.settle()
        return topic

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.database.close()


class PollingQueueSide(Side):
    """The reference: a queue that polls a table."""

    agent = polling_queue

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._name = name
        self._url = server.create_database(name)
        create_table(self._url)

    def arguments(self, topics: Topics) -> dict[str, Any]:
        return {
            "database": self._url,
            "bootstrap": topics.bootstrap,
            "input_topic": topics.input,
            "output_topic": topics.output,
        }

    def stored(self, from_ms: int) -> int:
        return _number(self._url, QUERIES["count"], {"from": _moment(from_ms)})

    def fill(self, first: int, count: int, due_ms: int) -> None:
        """Writes messages with these numbers directly into the table, all due at one moment."""
        values = {
            "prefix": f"{self._name}-",
            "deadline": _moment(due_ms),
            "first": first,
            "last": first + count - 1,
        }
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(QUERIES["fill"], values)

    def close(self) -> None:
        drop_database(self._server, self._name)


def _number(url: str, query: bytes, values: Mapping[str, object]) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query, values).fetchone()
    return int(row[0]) if row else 0


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
