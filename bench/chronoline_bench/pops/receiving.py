"""A receiver of callbacks that notes when each came, and answers 200."""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import Iterator

from chronoline_bench.pops.notes import NUMBER_DIGITS, now_us

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Receiver:
    """Listens on loopback."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._numbers = array("q")
        self._came_us = array("q")

    async def open(self) -> int:
        """The port that it listens at."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def note(self, body: bytes) -> None:
        self._came_us.append(now_us())
        self._numbers.append(int(body[:NUMBER_DIGITS]))

    def __len__(self) -> int:
        """How many timers came; one that came twice counts once."""
        return len(set(self._numbers))

    def take(self) -> Iterator[tuple[int, int]]:
        """What came since the last time: numbers, each with its moment."""
        numbers, came_us = self._numbers, self._came_us
        self._numbers, self._came_us = array("q"), array("q")
        return zip(numbers, came_us, strict=True)


class _Connection(asyncio.Protocol):
    """Of one caller, which keeps it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (body := self._next()) is not None:
            self._receiver.note(body)
            assert self._transport is not None
            self._transport.write(_ANSWER)

    def _next(self) -> bytes | None:
        """The body of the next request that is there as a whole."""
        whole = whole_message(self._buffer)
        if whole is None:
            return None
        _, body, self._buffer = whole
        return body


def whole_message(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Head and body of a request or an answer, and what follows it; None while it is not there as a whole."""
    head, end, rest = data.partition(_END)
    if not end:
        return None
    found = _LENGTH.search(head)
    length = int(found[1]) if found else 0
    if len(rest) < length:
        return None
    return head, rest[:length], rest[length:]
