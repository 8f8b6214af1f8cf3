"""Where messages wait: a topic of a broker, a tube of beanstalkd, or a table. The bench's view of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from chronoline.core.closing import Closing
from chronoline.core.topic import Topic, TopicSettings
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.brokers import node
from chronoline_bench.brokers.beanstalk import Beanstalk
from chronoline_bench.brokers.lines import now_us
from chronoline_bench.brokers.skip_locked import QUERIES
from chronoline_bench.engines.contract import Database
from chronoline_bench.filling import Filling
from chronoline_bench.messages import BODY_BYTES, count_all
from chronoline_bench.pipes.child import Child
from chronoline_bench.servers.beanstalkd import BeanstalkdServer
from chronoline_bench.show import Advance

SETTINGS = TopicSettings(window_ms=250)
"""Consumers that join have their shares soon; nothing else depends on it."""
TAKE = 100
"""So many jobs a consumer of the hand-written queue takes at a time, if nothing else is said."""
_START_S = 60.0
_JOBS = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed")


class Target(ABC):
    """One of them. Numbers are those of its messages, each is used once."""

    ours = False
    """What it loses is our fault."""

    def __init__(self) -> None:
        self._next = 0
        self.waiting = 0
        """So many were put there beforehand, and stay."""

    def reserve(self, count: int) -> int:
        """The first of so many numbers that nobody else has."""
        self._next += count
        return self._next - count

    @abstractmethod
    def line(self, **more: Any) -> dict[str, Any]:
        """How an agent reaches it."""

    @abstractmethod
    def count(self) -> int:
        """How many messages there are."""

    def left(self) -> int:
        return self.count() - self.waiting


class BrokerTarget(Target):
    """A topic."""

    ours = True

    def __init__(self, database: Database, address: str, topic: Topic) -> None:
        super().__init__()
        self._database = database
        self._address = address
        self._topic = topic

    def line(self, **more: Any) -> dict[str, Any]:
        more.pop("connections", None)  # one is enough
        return {"kind": "sdk", "address": self._address, "topic": self._topic.name, **more}

    def count(self) -> int:
        return count_all(self._database.store, self._topic, _now_ms())

    def fill(self, messages: int, start_ms: int, span_ms: int, advance: Advance) -> range:
        """Messages straight into the table, before anybody consumes; their numbers."""
        assert self._next == 0, "the first numbers are those of the filling"
        self._next = messages
        filling = Filling(total=messages, start_ms=start_ms, span_ms=span_ms, now_ms=_now_ms())
        self._database.fill(self._topic, filling, advance)
        self._database.settle()
        return range(messages)


class Broker(Closing):
    """A database, and a node on it in a process of its own."""

    def __init__(self, database: Database, url: str, log_path: Path) -> None:
        self.database = database
        self._topics = 0
        self._closed = False
        self._node = Child(node.__name__, url, log_path=log_path)
        try:
            _, port, pid = self._node.await_line("ready", _START_S).split()
        except BaseException:
            self.close()
            raise
        self.pid = int(pid)
        self._address = f"127.0.0.1:{port}"

    def open(self) -> BrokerTarget:
        """A new topic."""
        self._topics += 1
        name = f"topic-{self._topics}"
        made = self.database.store.create_topic(name, SETTINGS, now_ms=_now_ms())
        return BrokerTarget(self.database, self._address, made)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._node.stop()
            self.database.close()


class TubeTarget(Target):
    """A tube of beanstalkd."""

    def __init__(self, server: BeanstalkdServer, tube: str) -> None:
        super().__init__()
        self._port = server.port
        self._tube = tube

    def line(self, **more: Any) -> dict[str, Any]:
        return {"kind": "beanstalk", "port": self._port, "tube": self._tube, **more}

    def count(self) -> int:
        return asyncio.run(self._count())

    async def _count(self) -> int:
        connection = await Beanstalk.connect(self._port)
        stats = await connection.stats(self._tube)
        connection.close()
        return sum(int(stats.get(name, 0)) for name in _JOBS)


class TableTarget(Target):
    """The table of the hand-written queue, in a database of its own, emptied for each measurement."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def line(self, **more: Any) -> dict[str, Any]:
        return {"kind": "skip_locked", "url": self._url, "take": TAKE, **more}

    def count(self) -> int:
        with self._connect() as connection:
            row = connection.execute(QUERIES["count"]).fetchone()
        return int(row[0]) if row else 0

    def fill(self, messages: int, due_ms: int) -> range:
        """Jobs that are due at one moment; their numbers."""
        self._next = messages
        due = datetime.fromtimestamp(due_ms / 1000, UTC)
        values = {"due": due, "count": messages, "body_bytes": BODY_BYTES}
        with self._connect() as connection:
            connection.execute(QUERIES["fill"], values)
            connection.execute("VACUUM ANALYZE jobs")
            connection.execute("CHECKPOINT")
        return range(messages)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._url, autocommit=True)


class Table(Closing):
    """The database of the hand-written queue."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._name = name
        self._url = server.create_database(name)
        self._execute("create_table", "create_index")

    def open(self) -> TableTarget:
        self._execute("empty")
        return TableTarget(self._url)

    def close(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)'.encode())

    def _execute(self, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            for name in names:
                connection.execute(QUERIES[name])


def _now_ms() -> int:
    return now_us() // 1_000
