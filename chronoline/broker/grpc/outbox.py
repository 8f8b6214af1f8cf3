"""The replies that wait to be written to a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Reply = TypeVar("Reply")

_CLOGGED_BYTES = 4 * 1024 * 1024
_TOGETHER = 64
_TOGETHER_BYTES = 64 * 1024
"""The most that travels in one frame: each frame costs a turn through gRPC, and each reply in one a copy."""


class Outbox(Generic[Reply]):
    """A queue without waiting: loaders push nothing while it is clogged, and requests bound the answers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Reply, int]] = deque()
        self._taken = 0
        # Callbacks, each with the number of replies after which it is called.
        self._callbacks: deque[tuple[int, Callable[[], None]]] = deque()
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
        """Call back when every reply that waits now is taken."""
        self._callbacks.append((self._taken + len(self._waiting), tell))
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks and self._callbacks[0][0] <= self._taken:
            self._callbacks.popleft()[1]()

    def close(self) -> None:
        """Take no more replies. Those that wait are still written."""
        self._closed = True
        self._news.set()

    async def take(self) -> list[Reply]:
        """The next replies that travel together; empty at the end."""
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
        self._call_back()
        return taken
