"""The body of a request: bounded in size and time, and read when the node has room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from fastapi import HTTPException
from starlette.types import Message, Receive

from chronoline.broker.metrics import BrokerMetrics
from chronoline.core.errors import NodeBusy
from chronoline.runtime.admission import Admission, BodyClients, BodyRoom

_LEAST_BYTES_PER_S = 16 * 1024
"""A body that comes more slowly is given up, beyond the patience for the client."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """The bounds for the body of one client."""

    admission: Admission
    clients: BodyClients
    most_bytes: int
    patience_s: float


class BoundedBody:
    """The `receive` of a request: at most a frame, read when the node has room, with a time-out."""

    def __init__(
        self,
        receive: Receive,
        headers: Mapping[bytes, bytes],
        bounds: BodyBounds,
        metrics: BrokerMetrics,
        count: Callable[[str, Message], None],
    ) -> None:
        self._receive = receive
        announced = headers.get(b"content-length", b"0")
        self._announced_bytes = int(announced) if b"transfer-encoding" not in headers else None
        self._bounds = bounds
        self._metrics = metrics
        self._count = count
        self._read_bytes = 0
        self._waited_s = 0.0
        """The time that the client took, without that of the node."""
        self._complete = False
        self._ahead: deque[Message] = deque()
        """The messages that were read before the application asks for them."""
        size_bytes = bounds.most_bytes if self._announced_bytes is None else self._announced_bytes
        self._room = BodyRoom(bounds.admission, bounds.clients, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.end()

    async def admit(self) -> None:
        """Waits for room, before the first byte is read. A body of unknown size can be as large as a frame.

        Raises the refusal here, since FastAPI would answer it as a fault of the body. So a large body is read
        until it is known whether there is room for all of it.
        """
        self._check(self._announced_bytes or 0)
        room = self._room
        try:
            await room.begin()
            if self._announced_bytes is not None and self._announced_bytes <= room.small_bytes:
                return
            while not self._complete and self._read_bytes <= room.small_bytes:
                self._ahead.append(await self._read())
            await room.grow(self._read_bytes, is_complete=self._complete)
        except NodeBusy:
            self._metrics.refused("http", "node_busy")
            raise

    async def __call__(self) -> Message:
        if self._ahead:
            return self._ahead.popleft()
        if self._complete:
            return await self._receive()  # returns when the client disconnects
        message = await self._read()
        await self._room.grow(self._read_bytes, is_complete=self._complete)
        return message

    async def _read(self) -> Message:
        message = await self._next()
        self._count("in", message)
        self._read_bytes += len(message.get("body", b""))
        self._check(self._read_bytes)
        self._complete = not message.get("more_body", False)
        return message

    async def _next(self) -> Message:
        """Raises for a client that is silent, and for one that is much slower than any network."""
        loop, patience_s = asyncio.get_running_loop(), self._bounds.patience_s
        begun_s = loop.time()
        left_s = patience_s + self._read_bytes / _LEAST_BYTES_PER_S - self._waited_s
        try:
            async with asyncio.timeout(min(patience_s, left_s)):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the rest of the body did not arrive within {patience_s:g} s",
                headers={"connection": "close"},
            ) from None
        self._waited_s += loop.time() - begun_s
        return message

    def _check(self, size_bytes: int) -> None:
        most_bytes = self._bounds.most_bytes
        if size_bytes > most_bytes:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {most_bytes} bytes, the limit of this broker: send it in "
                "parts, or raise frame_bytes in its settings",
            )
