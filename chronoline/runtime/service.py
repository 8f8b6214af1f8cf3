"""The base classes of services and of closable objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Service(ABC):
    """Runs from `start` to `stop`, or for the length of a `with` block."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it runs."""

    @abstractmethod
    def stop(self) -> None:
        """Returns when it has ended. Stopping twice, or before the start, is fine."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class AsyncService(ABC):
    """Runs from `start` to `stop`, or for the length of an `async with` block."""

    @abstractmethod
    async def start(self) -> None:
        """Returns when it runs."""

    @abstractmethod
    async def stop(self) -> None:
        """Returns when it has ended. Stopping twice, or before the start, is fine."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Closing(ABC):
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
