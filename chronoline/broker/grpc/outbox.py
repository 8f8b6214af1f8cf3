"""What waits to be written to a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Reply = TypeVar("Reply")

_CLOGGED_BYTES = 4 * 1024 * 1024
_TOGETHER = 64
_TOGETHER_BYTES = 64 * 1024
"""So much travels in one frame: each frame costs a turn through gRPC, and what is put into one a copy."""


class Outbox(Generic[Reply]):
    """Putting never waits. Pushes stop while it is clogged; answers are as many as there were requests."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Reply, int]] = deque()
        self._taken = 0
        # Who is told when so many were taken.
        self._told: deque[tuple[int, Callable[[], None]]] = deque()
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

    def when_taken(self, tell: Callable[[], None]) -> None:
        """Calls back when everything that waits now was taken."""
        self._told.append((self._taken + len(self._waiting), tell))
        self._tell()

    def _tell(self) -> None:
        while self._told and self._told[0][0] <= self._taken:
            self._told.popleft()[1]()

    def close(self) -> None:
        """What waits is still written."""
        self._closed = True
        self._news.set()

    async def take(self) -> list[Reply]:
        """What can travel together next; nothing if there will be nothing more."""
        while not self._waiting and not self._closed:
            self._news.clear()
            await self._news.wait()
        taken: list[Reply] = []
        room_bytes = _TOGETHER_BYTES
        while self._waiting and len(taken) < _TOGETHER:
            reply, size_bytes = self._waiting[0]
            if taken and size_bytes > room_bytes:
                break
            self._waiting.popleft()
            self._bytes -= size_bytes
            room_bytes -= size_bytes
            taken.append(reply)
        self._taken += len(taken)
        self._tell()
        return taken
