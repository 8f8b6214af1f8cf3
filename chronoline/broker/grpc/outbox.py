"""What waits to be written to a client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

Reply = TypeVar("Reply")

_CLOGGED_BYTES = 4 * 1024 * 1024


class Outbox(Generic[Reply]):
    """Putting never waits. Pushes stop while it is clogged; answers are as many as there were requests."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Reply, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._closed = False

    @property
    def clogged(self) -> bool:
        return self._bytes > _CLOGGED_BYTES

    def put(self, reply: Reply, size_bytes: int = 0) -> None:
        if not self._closed:
            self._waiting.append((reply, size_bytes))
            self._bytes += size_bytes
            self._news.set()

    def close(self) -> None:
        """What waits is still written."""
        self._closed = True
        self._news.set()

    async def take(self) -> Reply | None:
        """None if there will be nothing more."""
        while not self._waiting:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        reply, size_bytes = self._waiting.popleft()
        self._bytes -= size_bytes
        return reply
