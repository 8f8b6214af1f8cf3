"""The body of a request: bounded in size and time, and read when the node has room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Self

from fastapi import HTTPException
from starlette.types import Message, Receive

from chronoline.broker.context import BrokerContext
from chronoline.core.errors import NodeBusy
from chronoline.runtime.admission import Admitted


class BoundedBody:
    """The `receive` of a request: at most a frame, read when the node has room, with a time-out."""

    def __init__(
        self,
        receive: Receive,
        headers: Mapping[bytes, bytes],
        parts: BrokerContext,
        client: str,
        count: Callable[[str, Message], None],
    ) -> None:
        self._receive = receive
        self._announced_bytes = int(headers.get(b"content-length", b"0"))
        self._is_announced = b"transfer-encoding" not in headers
        self._parts = parts
        self._client = client
        self._most_bytes = parts.limits.frame_bytes
        self._patience_s = parts.limits.ping_timeout_ms / 1000
        self._count = count
        self._read_bytes = 0
        self._complete = False
        self._admitted: Admitted | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._admitted is not None:
            self._admitted.end()

    async def admit(self) -> None:
        """Waits for room, before the first byte is read. A body of unknown size can be as large as a frame.

        Raises the refusal here, since FastAPI would answer it as a fault of the body.
        """
        self._check(self._announced_bytes)
        size_bytes = self._announced_bytes if self._is_announced else self._most_bytes
        if size_bytes:
            try:
                self._admitted = await self._parts.admission.admit(self._client, size_bytes)
            except NodeBusy:
                self._parts.metrics.refused("http", "node_busy")
                raise

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # returns when the client disconnects
        message = await self._next()
        self._count("in", message)
        self._read_bytes += len(message.get("body", b""))
        self._check(self._read_bytes)
        self._complete = not message.get("more_body", False)
        if self._complete and self._admitted is not None:
            self._admitted.shrink(self._read_bytes)
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the rest of the body did not arrive within {self._patience_s:g} s",
                headers={"connection": "close"},
            ) from None

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._most_bytes:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {self._most_bytes} bytes, the limit of this broker: send it in "
                "parts, or raise frame_bytes in its settings",
            )
