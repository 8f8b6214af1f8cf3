"""Requests for timers over HTTP, and a receiver of their callbacks.

Both implement HTTP themselves, to use little CPU time beside the measured nodes. All times are of the
monotonic clock, as in the nodes.
"""

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chronoline.core.errors import ChronolineError
from chronoline_bench.harness.agent import freeze_heap, paced
from chronoline_bench.harness.passage import Notes

NUMBER_DIGITS = 12
OPAQUE = f"%0{NUMBER_DIGITS}d".encode() + b"." * 52
"""The opaque text of a timer, 64 characters: it begins with the timer's number."""
_SENT = struct.Struct("<qQqq")
_HEAD = b"POST /timers HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n"
_BODY = (
    b'{"timing":{"interval-ms":%d},"callback":{"http":{"uri":"%b","opaque":"' + OPAQUE + b'"}},'
    b'"reliability":{"replication-factor":%d}}'
)
_TAKEN = b"HTTP/1.1 200 "
_LOCATION = re.compile(rb"\r\nlocation: /timers/([0-9a-f]{16})", re.IGNORECASE)
_CHANCE = random.Random(7)
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def now_us() -> int:
    return time.monotonic_ns() // 1_000


class SentTimer(NamedTuple):
    """A timer that a node accepted. It is due by the clock of its sender."""

    number: int
    id: int
    due_us: int
    interval_ms: int


def write_sent(path: Path, sent: Iterable[SentTimer]) -> None:
    path.write_bytes(b"".join(_SENT.pack(*each) for each in sent))


def read_sent(path: Path) -> Iterator[SentTimer]:
    for each in _SENT.iter_unpack(path.read_bytes()):
        yield SentTimer(*each)


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When timers are due: after a delay, or spread over a span of time."""

    shortest_ms: int = 0
    longest_ms: int = 0
    lead_ms: int = 0
    """The time from the first request to the span."""
    span_ms: int = 0
    """The length of the span; 0 if there is none."""

    def intervals(self, timers: int) -> Callable[[int, int], int]:
        """Returns a function of a timer's place and the µs since the first request: its interval."""
        if not self.span_ms:
            return lambda *_: _CHANCE.randint(self.shortest_ms, self.longest_ms)
        places = list(range(timers))
        _CHANCE.shuffle(places)

        def interval_ms(place: int, after_us: int) -> int:
            due_ms = self.lead_ms + places[place] * self.span_ms / timers
            return max(0, round(due_ms - after_us / 1000))

        return interval_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Timers to send, and the nodes to send them to."""

    nodes: Sequence[str]
    uri: str
    first: int
    """The number of the first timer."""
    timers: int
    when: When
    connections: int
    rate: float | None = None
    """Timers per second; None is as fast as possible."""
    factor: int = 2


@dataclass(slots=True)
class LoadSender:
    """Sends one load."""

    load: Load
    path: Path | None = None
    """A file for the accepted timers; without it they are only counted."""
    taken: int = 0
    sent: list[SentTimer] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    started_us: int = 0
    is_enough: bool = False

    async def run(self) -> dict[str, float]:
        """Sends all timers; returns the start and end times, and the number of accepted timers."""
        load = self.load
        connections = [
            await Connection.open(load.nodes[place % len(load.nodes)])
            for place in range(load.connections)
        ]
        interval_ms = load.when.intervals(load.timers)

        async def send(connection: Connection, place: int) -> None:
            interval = interval_ms(place, now_us() - self.started_us)
            await self._send(connection, load.first + place, interval)

        freeze_heap()
        self.started_us = now_us()
        if load.rate is None:
            await self._fast(connections, send)
        else:
            await self._steadily(connections, load.rate, send)
        ended_us = now_us()
        for connection in connections:
            connection.close()
        if self.refused:
            raise ChronolineError(f"{len(self.refused)} timers were refused: {self.refused[0]}")
        if self.path is not None:
            write_sent(self.path, self.sent)
        return {"started_us": self.started_us, "ended_us": ended_us, "taken": self.taken}

    async def _fast(
        self, connections: list[Connection], send: Callable[[Connection, int], Awaitable[None]]
    ) -> None:
        places = iter(range(self.load.timers))

        async def work(connection: Connection) -> None:
            for place in places:
                if self.is_enough:
                    return
                await send(connection, place)

        await asyncio.gather(*map(work, connections))

    async def _steadily(
        self,
        connections: list[Connection],
        rate: float,
        send: Callable[[Connection, int], Awaitable[None]],
    ) -> None:
        """Sends at a rate, without waiting for earlier answers while a connection is free."""
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            free.put_nowait(connection)

        async def on(connection: Connection, place: int) -> None:
            try:
                await send(connection, place)
            finally:
                free.put_nowait(connection)

        async with asyncio.TaskGroup() as group:
            async for place in paced(self.load.timers, rate):
                if self.is_enough:
                    return
                group.create_task(on(await free.get(), place))

    async def _send(self, connection: Connection, number: int, interval_ms: int) -> None:
        load = self.load
        body = _BODY % (interval_ms, load.uri.encode(), number, load.factor)
        due_us = now_us() + interval_ms * 1_000
        head, reply = await connection.send(_HEAD % (connection.host, len(body)) + body)
        location = _LOCATION.search(head)
        if head.startswith(_TAKEN) and location:
            self.taken += 1
            if self.path is not None:
                self.sent.append(SentTimer(number, int(location[1], 16), due_us, interval_ms))
        else:
            self.refused.append((head.partition(b"\r\n")[0] + b" " + reply).decode())


class Connection(asyncio.Protocol):
    """A connection to a node that stays open; one request at a time."""

    def __init__(self, address: str) -> None:
        self.host = address.encode()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None

    @classmethod
    async def open(cls, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(address), host, int(port))
        return connection

    def send(self, request: bytes) -> asyncio.Future[tuple[bytes, bytes]]:
        """Returns head and body of the answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            self.connection_lost(None)
        else:
            self._transport.write(request)
        return self._answer

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        whole = whole_message(self._buffer)
        if whole is not None and self._answer is not None:
            head, body, self._buffer = whole
            self._answer.set_result((head, body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            reply = f"the connection to {self.host.decode()} is lost: {error or 'closed'}"
            self._answer.set_exception(ChronolineError(reply))


class Receiver:
    """A server on loopback that notes each callback and answers 200."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.notes = Notes()

    async def open(self) -> int:
        """Starts to listen; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self.notes), "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class _Caller(asyncio.Protocol):
    """A connection of a node."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (body := self._next()) is not None:
            self._notes.came(int(body[:NUMBER_DIGITS]), now_us())
            assert self._transport is not None
            self._transport.write(_ANSWER)

    def _next(self) -> bytes | None:
        """Returns the body of the next complete request."""
        whole = whole_message(self._buffer)
        if whole is None:
            return None
        _, body, self._buffer = whole
        return body


def whole_message(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Returns head and body of a request or an answer, and the rest; None while it is incomplete."""
    head, end, rest = data.partition(_END)
    if not end:
        return None
    found = _LENGTH.search(head)
    length = int(found[1]) if found else 0
    if len(rest) < length:
        return None
    return head, rest[:length], rest[length:]
