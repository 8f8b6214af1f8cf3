"""The sides between two topics, each with its database: Chronoline's pipe, and the polling queue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg

from chronoline.core.topic import Topic
from chronoline.pipe.settings import PipeSettings, topic_settings
from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.service import Closable
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.engines.postgres import PostgresDatabase, drop_database
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.harness.stage import Stage
from chronoline_bench.pipe import polling_queue
from chronoline_bench.pipe.node import PipeProcess
from chronoline_bench.pipe.polling_queue import QUERIES, create_table
from chronoline_bench.pipe.transport import KAFKA, Topics
from chronoline_bench.session import Advance
from chronoline_bench.workload import Filling

FILL_BYTES = 64
_STORED = b"SELECT count(*) FROM chronoline.messages WHERE due >= %(from)s"


class Side(Closable):
    """A database, and the processes that serve the topics with it."""

    @abstractmethod
    def start_node(self, stage: Stage, topics: Topics) -> LineProcess:
        """Starts a process between two topics."""

    @abstractmethod
    def await_node(self, node: LineProcess) -> None:
        """Waits until it says that it runs."""

    @abstractmethod
    def stored(self, from_ms: int) -> int:
        """Counts the rows that are due from a moment on."""


class PipeSide(Side):
    """Chronoline's pipe, on Spark. If its store is a new database, the pipe makes the tables."""

    def __init__(
        self,
        name: str,
        store: str,
        *,
        settings: Mapping[str, Any] | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.topic = name
        """The timeline that the pipe makes."""
        self.store = store
        self._on_close = on_close
        self._settings = dict(settings or {})

    def flags(self, topics: Topics) -> dict[str, Any]:
        """Returns the settings of the pipe."""
        return {"name": self.topic, "store": self.store, **topics.flags(), **self._settings}

    def start_node(self, stage: Stage, topics: Topics) -> LineProcess:
        process = PipeProcess(self.flags(topics), stage.path())
        process.start()
        return process

    def await_node(self, node: LineProcess) -> None:
        assert isinstance(node, PipeProcess)
        node.await_running()

    def stored(self, from_ms: int) -> int:
        return _number(self.store, _STORED, {"from": from_ms})

    def fill(
        self,
        database: PostgresDatabase,
        count: int,
        start_ms: int,
        span_ms: int,
        advance: Advance,
    ) -> Topic:
        """Writes waiting messages directly into the table, on the timeline of the pipe."""
        nowhere = Topics(place=f"{KAFKA}127.0.0.1:9", input="in", output="out")
        settings = topic_settings(PipeSettings.load(flags=self.flags(nowhere)))
        now_ms = SystemClock().now_ms()
        topic = database.store.ensure_topic(self.topic, settings, now_ms=now_ms)
        filling = Filling(
            total=count, start_ms=start_ms, span_ms=span_ms, now_ms=now_ms, body_bytes=FILL_BYTES
        )
        database.fill(topic, filling, advance)
        database.settle()
        return topic

    def close(self) -> None:
        self._on_close()


class PollingQueueSide(Side):
    """The reference: a queue that polls a table."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._name = name
        self._url = server.create_database(name)
        create_table(self._url)

    def start_node(self, stage: Stage, topics: Topics) -> LineProcess:
        agent = stage.new_agent(polling_queue)
        agent.begin(
            "serve",
            database=self._url,
            bootstrap=topics.bootstrap,
            input_topic=topics.input,
            output_topic=topics.output,
        )
        return agent

    def await_node(self, node: LineProcess) -> None:
        assert isinstance(node, AgentProcess)
        node.answer()

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
