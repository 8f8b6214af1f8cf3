"""Lines: the clients through which an agent puts and consumes, by the SDK or on a PostgreSQL table.

The line to beanstalkd is in `beanstalk`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg

from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import ChronolineError
from chronoline.databases.queries import load_queries
from chronoline.runtime.tasks import TaskSet
from chronoline_bench.harness.passage import Notes, wall_us
from chronoline_bench.workload import BODY_BYTES, message_id

POLL_S = 0.005
QUERIES = {name: text.encode() for name, text in load_queries("chronoline_bench.broker").items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEASE_S = 60.0
_NUMBER_BYTES = 8
_REST = bytes(BODY_BYTES - _NUMBER_BYTES)


def number_of_id(message_id: str) -> int:
    return int(message_id[1:])


def body_of(number: int) -> bytes:
    """Returns a body of the benches' common size; it begins with the message's number."""
    return number.to_bytes(_NUMBER_BYTES, "big") + _REST


def number_of_body(body: bytes) -> int:
    return int.from_bytes(body[:_NUMBER_BYTES], "big")


class Line(ABC):
    """A client that puts and consumes. It is opened in the event loop that uses it."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        """Puts a message that is due `delay_s` from now; returns when it is durable.

        Returns the due time in µs. `hand` is the number of the calling task among concurrent ones.
        """

    @abstractmethod
    async def consume(self, notes: Notes, ready: Callable[[], None]) -> None:
        """Takes messages until it is cancelled, and acks each.

        Calls `ready` when due messages arrive from then on. Settles all taken messages before it ends.
        """


class SdkLine(Line):
    """A topic of a broker, through `AsyncClient`. Acks overlap; `prefetch` bounds the held leases."""

    def __init__(self, address: str, topic: str, prefetch: int = 256) -> None:
        self._topic = topic
        self._prefetch = prefetch
        self._client = AsyncClient(address, timeout=60.0)

    async def open(self) -> None:
        await self._client.topic(self._topic)

    async def close(self) -> None:
        await self._client.close()

    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        due_ms = -(-wall_us() // 1_000) + delay_s * 1_000
        await self._client.send(
            self._topic,
            body_of(number),
            id=message_id(number),
            due=_EPOCH + timedelta(milliseconds=due_ms),
        )
        return due_ms * 1_000

    async def consume(self, notes: Notes, ready: Callable[[], None]) -> None:
        stream = await self._client.subscribe(
            [self._topic], lease=_LEASE_S, prefetch=self._prefetch
        )
        acks = TaskSet()
        ready()
        try:
            while True:
                lease = await stream.next()
                notes.came(number_of_id(lease.id), wall_us())
                acks.start(_ack(lease, notes))
        finally:
            await asyncio.gather(*acks)
            await self._client.unsubscribe(stream)

    def batch(self, first: int, count: int, delay_s: int) -> list[ToSend]:
        """Prepares messages for `put_many`."""
        due = datetime.now(UTC) + timedelta(seconds=delay_s)
        return [
            ToSend(id=message_id(number), body=body_of(number), due=due)
            for number in range(first, first + count)
        ]

    async def put_many(self, messages: list[ToSend]) -> None:
        (await self._client.send_many(self._topic, messages)).raise_for_refused()


async def _ack(lease: AsyncLease, notes: Notes) -> None:
    try:
        await lease.ack()
    except ChronolineError:
        notes.settled(refused=1)
    else:
        notes.settled(acked=1)


class SkipLockedLine(Line):
    """A typical hand-written queue: one table, SELECT … FOR UPDATE SKIP LOCKED, DELETE.

    A consumer takes up to `take` jobs at a time, and holds them in an open transaction, which is its lease.
    It polls every 5 ms, and at once after a poll that found jobs.
    """

    def __init__(self, url: str, take: int = 1, connections: int = 1) -> None:
        self._url = url
        self._take = take
        self._count = connections
        self._connections: list[psycopg.AsyncConnection] = []
        self._locks = [asyncio.Lock() for _ in range(connections)]

    async def open(self) -> None:
        for _ in range(self._count):
            self._connections.append(
                await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            )

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        due_us = wall_us() + delay_s * 1_000_000
        values = {
            "id": number,
            "due": _EPOCH + timedelta(microseconds=due_us),
            "body": body_of(number),
        }
        place = hand % self._count
        async with self._locks[place]:
            await self._connections[place].execute(QUERIES["insert"], values)
        return due_us

    async def consume(self, notes: Notes, ready: Callable[[], None]) -> None:
        """Works in a thread, without an event loop, at the speed of the driver."""
        stopping = threading.Event()
        working = asyncio.ensure_future(asyncio.to_thread(self._work, notes, stopping))
        ready()
        try:
            await asyncio.shield(working)
        finally:
            stopping.set()
            await working

    def _work(self, notes: Notes, stopping: threading.Event) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            next_s = time.monotonic()
            while not stopping.is_set():
                if self._serve(connection, notes) == self._take:
                    continue
                next_s = max(next_s + POLL_S, time.monotonic())
                stopping.wait(next_s - time.monotonic())

    def _serve(self, connection: psycopg.Connection, notes: Notes) -> int:
        """Takes and deletes once; returns the number of jobs."""
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(QUERIES["take"], {"limit": self._take})
            ids = [int(row[0]) for row in cursor]
            for each in ids:
                notes.came(each, wall_us())
            if ids:
                cursor.execute(QUERIES["delete"], {"ids": ids})
        if ids:
            notes.settled(acked=len(ids))
        return len(ids)
