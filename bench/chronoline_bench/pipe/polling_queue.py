"""A delay queue that polls a table, after a published algorithm: the reference of the bench `pipe`.

A node has three threads. The first consumes the input topic and stores each message by one insert, in its own
transaction. The second polls every 100 ms: it marks the due messages as readied by this node, publishes the
rows that the update returned, waits for the acknowledgements, and deletes them. The third looks every 500 ms
for messages that other nodes have held for too long, and resets them. There is one table, with an index for
each of the two polls.

The node is not slowed on purpose: statements are prepared, a poll takes all due messages, all deletes of a
poll are one statement, and consumed offsets are committed in the background. One parameter differs from the
publication: the timing advance is 0 instead of 50 ms, as in Chronoline's pipe; with 50 ms half of the
messages would be early.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer
from psycopg.types.json import Jsonb

from chronoline.databases.queries import load_queries
from chronoline.runtime.service import Closable
from chronoline_bench.harness.agent import Figures

logger = logging.getLogger(__name__)

ID_HEADER = "chronosMessageId"
DEADLINE_HEADER = "chronosDeadline"
QUERIES = {name: text.encode() for name, text in load_queries("chronoline_bench.pipe").items()}
_POLL_S = 0.1
_READY_S = 60
_AGAIN_S = 0.1
_JITTER = 0.1
"""A share of the poll interval, so that nodes do not poll in unison."""

Row = tuple[Any, ...]
Headers = list[dict[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The parameters of the published algorithm."""

    database: str
    bootstrap: str
    input_topic: str
    output_topic: str
    timing_advance_ms: int = 0
    hold_ms: int = 5_000
    poll_interval_ms: int = 100
    failure_detection_interval_ms: int = 500


def create_table(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name in ("create_table", "create_deadline_index", "create_readied_index"):
            connection.execute(QUERIES[name])


class Node(Closable):
    """Runs from the start to `close`. `ready` is set when it has partitions to consume."""

    def __init__(self, settings: NodeSettings) -> None:
        self.id = uuid.uuid4()
        self.ready = threading.Event()
        self._settings = settings
        self._advance = timedelta(milliseconds=settings.timing_advance_ms)
        self._stopping = threading.Event()
        # A flush delivers acknowledgements, so each publishing thread has its own producer.
        self._direct, self._firing = (self._open_producer() for _ in range(2))
        logger.info("node %s starts", self.id)
        self._threads = [
            threading.Thread(target=self._repeat, args=(work,), name=work.__name__)
            for work in (self._consume, self._fire, self._detect)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _open_producer(self) -> Producer:
        servers = self._settings.bootstrap
        return Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})

    def _repeat(self, work: Callable[[Database], None]) -> None:
        """Repeats its work until the node stops, with a new connection after each database failure."""
        while not self._stopping.is_set():
            try:
                with Database(self._settings.database) as database:
                    work(database)
            except psycopg.OperationalError as error:
                logger.warning("the database failed: %s", error)
                self._stopping.wait(_AGAIN_S)

    # Consuming and enqueuing

    def _consume(self, database: Database) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._settings.bootstrap,
                "group.id": f"polling-queue-{self._settings.input_topic}",
                "auto.offset.reset": "earliest",
                # Only the offsets of stored messages are committed, in the background.
                "enable.auto.offset.store": False,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._settings.input_topic], on_assign=lambda *_: self.ready.set())
        try:
            while not self._stopping.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    self._enqueue(database, message)
                    consumer.store_offsets(message)
        finally:
            consumer.close()

    def _enqueue(self, database: Database, message: Message) -> None:
        given = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        headers = [(name, _text(value)) for name, value in given]
        own = dict(headers)
        try:
            message_id = own[ID_HEADER] or ""
            deadline = _moment(own[DEADLINE_HEADER] or "")
        except (KeyError, ValueError):
            logger.exception("a message without id and deadline headers is dropped")
            return
        others: Headers = [
            {name: value} for name, value in headers if name not in (ID_HEADER, DEADLINE_HEADER)
        ]
        key, value = _text(message.key()), message.value()
        if deadline > datetime.now(UTC) + self._advance:
            database.run(
                "insert",
                id=message_id,
                deadline=deadline,
                headers=Jsonb(others),
                key=key,
                value=value,
            )
        elif not database.run("exists", id=message_id).fetchone():
            self._publish(self._direct, [(message_id, others, key, value)])

    # Readying and firing

    def _fire(self, database: Database) -> None:
        interval_s = self._settings.poll_interval_ms / 1000
        while not self._stopping.is_set():
            started = time.monotonic()
            now = datetime.now(UTC)
            rows = database.run("ready", now=now, node=self.id, until=now + self._advance)
            published = self._publish(self._firing, rows.fetchall())
            if published:
                deleted = database.run("delete", ids=published).rowcount
                if deleted < len(published):
                    logger.warning("%s messages were already deleted", len(published) - deleted)
            left_s = interval_s - (time.monotonic() - started)
            self._stopping.wait(max(0.0, left_s) + random.uniform(0, _JITTER * interval_s))

    def _publish(self, producer: Producer, rows: Sequence[Row]) -> list[str]:
        """Publishes rows; returns the ids that the broker acknowledged."""
        acknowledged: list[str] = []

        def confirm(message_id: str) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, _: Message) -> None:
                if error is None:
                    acknowledged.append(message_id)

            return note

        for message_id, headers, key, value in rows:
            pairs = [(name, text) for header in headers for name, text in header.items()]
            while True:
                try:
                    producer.produce(
                        self._settings.output_topic,
                        key=key,
                        value=value,
                        headers=pairs,
                        on_delivery=confirm(message_id),
                    )
                    break
                except BufferError:
                    producer.poll(_POLL_S)
        producer.flush()
        return acknowledged

    # Failure detection and recovery

    def _detect(self, database: Database) -> None:
        hold = timedelta(milliseconds=self._settings.hold_ms)
        while not self._stopping.wait(self._settings.failure_detection_interval_ms / 1000):
            stuck = database.run("stuck", before=datetime.now(UTC) - hold).fetchall()
            for message_id, readied_at, readied_by in stuck:
                reset = database.run(
                    "reset", id=message_id, readied_at=readied_at, readied_by=readied_by
                )
                if reset.rowcount:
                    logger.warning("suspected failure of %s for message %s", readied_by, message_id)


class Database(Closable):
    """One connection; each statement is a transaction."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def run(self, query: str, **values: object) -> psycopg.Cursor[Row]:
        return self._connection.execute(QUERIES[query], values)

    def close(self) -> None:
        self._connection.close()


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Agent:
    """The agent that runs a node."""

    def __init__(self) -> None:
        logging.basicConfig(level=logging.WARNING)
        self._node: Node | None = None

    async def serve(self, **settings: Any) -> Figures:
        """Starts a node; returns when it has partitions to consume."""
        self._node = Node(NodeSettings(**settings))
        await asyncio.to_thread(self._node.ready.wait, _READY_S)
        return {}

    async def close(self) -> None:
        if self._node is not None:
            await asyncio.to_thread(self._node.close)
