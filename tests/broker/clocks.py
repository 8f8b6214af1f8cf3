"""A clock that a test can move, and a store that records its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from tests.delivery.stores import WRITES as _WRITES

WRITES = _WRITES | {"resume", "purge", "create_topic", "delete_topic"}
"""The methods of the store that take the time."""


class MovableClock(SystemClock):
    """The machine's clock, moved by `ahead_ms`."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def seconds_until(self, moment_ms: int) -> float:
        return super().seconds_until(moment_ms - self.ahead_ms)


class Recorded:
    """A store that records the names of its calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []
        self.farthest_ms = 0
        """The largest difference between a time to write and the machine's clock."""
        self.after: Callable[[str, Any], None] = lambda _, __: None
        """Called after each call with its name and its answer."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def ask(*given: Any, **named: Any) -> Any:
            self.asked.append(name)
            if name in WRITES:
                off_ms = abs(named["now_ms"] - SystemClock().now_ms())
                self.farthest_ms = max(self.farthest_ms, off_ms)
            answer = found(*given, **named)
            self.after(name, answer)
            return answer

        return ask
