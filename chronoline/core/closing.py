"""What is closed at the end of its block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Holds something until `close`, which the end of a `with` block calls, whatever happened in it."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what is held. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
