"""The base classes of services and of closable objects.

A `Service` implements `start` and `stop` itself: its thread or process may end by itself, so only the class
knows whether it runs. An `AsyncService` ends by `stop` alone, so the base class keeps count.

Not derived: `TimerNodes`, whose `start` and `stop` name single nodes; it is `Closable` as a whole. Parts that
run from their creation to `stop`, such as `StoreAccess` and `TimerNode`, have no start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Service(ABC):
    """Runs from `start` to `stop`, or for the length of a `with` block."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it runs. While it runs another start does nothing, or raises `InvalidInput`."""

    @abstractmethod
    def stop(self) -> None:
        """Returns when it has ended. Stopping twice, or before the start, is fine."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class AsyncService(ABC):
    """Runs from `start` to `stop`, or for the length of an `async with` block.

    A subclass implements `_start` and `_stop`. Owned by the event loop.
    """

    _runs = False

    @abstractmethod
    async def _start(self) -> None:
        """Returns when it runs."""

    @abstractmethod
    async def _stop(self) -> None:
        """Returns when it has ended. Called once after each start, also after one that failed midway."""

    async def start(self) -> None:
        """Returns when it runs. While it runs another start does nothing. A start that fails stops it."""
        if self._runs:
            return
        self._runs = True
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Returns when it has ended. Stopping twice, or before the start, is fine."""
        if self._runs:
            self._runs = False
            await self._stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Closable(ABC):
    """Holds a resource until `close`, which the end of a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Releases the resource. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
