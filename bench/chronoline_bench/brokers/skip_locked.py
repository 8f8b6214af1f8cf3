"""A queue on PostgreSQL as people write it by hand: one table, SELECT … FOR UPDATE SKIP LOCKED, DELETE.

A consumer has a transaction open while it works on what it took: that is its lease. It looks every 5 ms, and
at once again as long as there is more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg

from chronoline.databases.queries import load_queries
from chronoline_bench.brokers.lines import Line, Notes, body_of, now_us

POLL_S = 0.005
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUERIES = {name: text.encode() for name, text in load_queries("chronoline_bench.brokers").items()}


class SkipLockedLine(Line):
    """The table of a database. Consumers take up to `take` jobs at a time."""

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
        due_us = now_us() + delay_s * 1_000_000
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
        """In a thread, without an event loop: as fast as the driver is."""
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
        """How many it took."""
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(QUERIES["take"], {"limit": self._take})
            ids = [int(row[0]) for row in cursor]
            for each in ids:
                notes.came(each)
            if ids:
                cursor.execute(QUERIES["delete"], {"ids": ids})
        if ids:
            notes.settled(acked=len(ids))
        return len(ids)
