"""A client of beanstalkd with the commands that the bench needs, and the line over it.

The server answers commands in order, so several can be in flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from chronoline.core.errors import ChronolineError
from chronoline_bench.broker.lines import Line, body_of, number_of_body
from chronoline_bench.harness.passage import Notes, wall_us

_END = b"\r\n"
_WITH_DATA = (b"RESERVED", b"OK")
TTR_S = 60


class Job(NamedTuple):
    """A reserved job."""

    id: int
    body: bytes


class _Answer(NamedTuple):
    words: list[bytes]
    data: bytes


class Beanstalk(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[_Answer]] = deque()
        self._buffer = bytearray()
        self._lost: ChronolineError | None = None

    @classmethod
    async def connect(cls, port: int) -> Beanstalk:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # Commands

    async def use(self, tube: str) -> None:
        """Selects the only tube of this connection, for put and reserve."""
        name = tube.encode()
        await self._ask(b"use " + name, b"USING")
        await self._ask(b"watch " + name, b"WATCHING")
        await self._ask(b"ignore default", b"WATCHING")

    async def put(self, body: bytes, delay_s: int) -> int:
        """Puts a job; returns its id when the job is on disk."""
        command = b"put 0 %d %d %d\r\n%b" % (delay_s, TTR_S, len(body), body)
        return int((await self._ask(command, b"INSERTED")).words[1])

    async def reserve(self) -> Job:
        """Waits for the next job that is ready."""
        answer = await self._ask(b"reserve", b"RESERVED")
        return Job(int(answer.words[1]), answer.data)

    async def delete(self, job_id: int) -> None:
        await self._ask(b"delete %d" % job_id, b"DELETED")

    async def stats(self, tube: str) -> dict[str, str]:
        """Returns the counts of a tube; empty if it does not exist, as without jobs."""
        answer = await self._send(b"stats-tube " + tube.encode())
        lines = answer.data.decode().splitlines()
        return dict(line.split(": ", 1) for line in lines if ": " in line)

    # The connection

    async def _ask(self, command: bytes, wanted: bytes) -> _Answer:
        answer = await self._send(command)
        if answer.words[0] != wanted:
            said = b" ".join(answer.words).decode()
            raise ChronolineError(f"beanstalkd answered {said!r} to {command[:40]!r}")
        return answer

    def _send(self, command: bytes) -> asyncio.Future[_Answer]:
        if self._lost is not None or self._transport is None:
            raise self._lost or ChronolineError("there is no connection to beanstalkd")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.write(command + _END)
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = ChronolineError(f"the connection to beanstalkd is lost: {error or 'closed'}")
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(self._lost)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (answer := self._next()) is not None:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def _next(self) -> _Answer | None:
        """Returns the next complete answer."""
        line_end = self._buffer.find(_END)
        if line_end < 0:
            return None
        words = bytes(self._buffer[:line_end]).split()
        begin = end = line_end + len(_END)
        if words[0] in _WITH_DATA:
            end += int(words[-1])
            if len(self._buffer) < end + len(_END):
                return None
            data = bytes(self._buffer[begin:end])
            del self._buffer[: end + len(_END)]
            return _Answer(words, data)
        del self._buffer[:end]
        return _Answer(words, b"")


class BeanstalkLine(Line):
    """A tube. Delays are whole seconds, and count from the server's receipt of the job.

    A connection that waits for a job answers nothing else: a consumer does not put.
    """

    def __init__(self, port: int, tube: str, connections: int = 1) -> None:
        self._port = port
        self._tube = tube
        self._count = connections
        self._connections: list[Beanstalk] = []

    async def open(self) -> None:
        for _ in range(self._count):
            connection = await Beanstalk.connect(self._port)
            self._connections.append(connection)
            await connection.use(self._tube)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        due_us = wall_us() + delay_s * 1_000_000
        await self._connections[hand % self._count].put(body_of(number), delay_s)
        return due_us

    async def consume(self, notes: Notes, ready: Callable[[], None]) -> None:
        """Takes one job at a time on each connection; the next reserve is sent together with the delete."""
        ready()
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(_consume(connection, notes))


async def _consume(connection: Beanstalk, notes: Notes) -> None:
    reserving = asyncio.ensure_future(connection.reserve())
    deleting: asyncio.Future[None] | None = None
    try:
        while True:
            job = await reserving
            notes.came(number_of_body(job.body), wall_us())
            deleting = asyncio.ensure_future(_delete(connection, job, notes))
            reserving = asyncio.ensure_future(connection.reserve())
            await asyncio.shield(deleting)
    finally:
        reserving.cancel()
        if deleting is not None:
            await deleting


async def _delete(connection: Beanstalk, job: Job, notes: Notes) -> None:
    try:
        await connection.delete(job.id)
    except ChronolineError:
        notes.settled(refused=1)
    else:
        notes.settled(acked=1)
