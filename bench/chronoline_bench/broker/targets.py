"""Targets of a load: a topic of a broker, a tube of beanstalkd, or a table."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any

import psycopg

from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.service import Closable
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.broker.beanstalk import Beanstalk
from chronoline_bench.broker.lines import QUERIES
from chronoline_bench.engines.contract import Database
from chronoline_bench.engines.postgres import drop_database
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.harness.passage import wall_us
from chronoline_bench.servers.beanstalkd import BeanstalkdServer
from chronoline_bench.session import Advance
from chronoline_bench.workload import BODY_BYTES, Filling, count_all

SETTINGS = TopicSettings(window_ms=250)
"""Short, so that new consumers soon have their shares."""
TAKE = 100
"""The default number of jobs that a consumer of the hand-written queue takes at a time."""
_JOBS = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed")


class Target(ABC):
    """A holder of waiting messages. It numbers them; each number is used once."""

    ours = False
    """True for Chronoline, false for a reference."""

    def __init__(self) -> None:
        self._next = 0
        self.waiting = 0
        """Messages that were written beforehand, and stay."""

    def reserve(self, count: int) -> int:
        """Reserves unused numbers; returns the first."""
        self._next += count
        return self._next - count

    @abstractmethod
    def line(self, **more: Any) -> dict[str, Any]:
        """Returns the arguments of an agent's line to it."""

    @abstractmethod
    def count(self) -> int:
        """Returns the number of messages that it holds."""

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
        """Writes messages directly into the table, before consumers start; returns their numbers."""
        assert self._next == 0, "the first numbers are those of the filling"
        self._next = messages
        filling = Filling(total=messages, start_ms=start_ms, span_ms=span_ms, now_ms=_now_ms())
        self._database.fill(self._topic, filling, advance)
        self._database.settle()
        return range(messages)


class Broker(Closable):
    """A broker in a process of its own, and its database."""

    def __init__(self, database: Database, node: AgentProcess) -> None:
        self.database = database
        self._topics = 0
        self._node = node
        try:
            serving = node.ask("serve", url=database.url)
        except BaseException:
            self.close()
            raise
        self.pid = int(serving["pid"])
        self.address = f"127.0.0.1:{serving['port']}"

    def open(self, settings: TopicSettings = SETTINGS) -> BrokerTarget:
        """Creates a topic."""
        self._topics += 1
        name = f"topic-{self._topics}"
        made = self.database.store.create_topic(name, settings, now_ms=_now_ms())
        return BrokerTarget(self.database, self.address, made)

    def close(self) -> None:
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
        """Writes jobs that are due at one moment; returns their numbers."""
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


class Table(Closable):
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
        drop_database(self._server, self._name)

    def _execute(self, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            for name in names:
                connection.execute(QUERIES[name])


def _now_ms() -> int:
    return wall_us() // 1_000
