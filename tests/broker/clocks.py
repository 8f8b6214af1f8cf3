"""A clock that a test can move, and a store that says what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from tests.delivery.stores import WRITES as _WRITES

WRITES = _WRITES | {"resume", "purge", "create_topic", "delete_topic"}
"""What the store is told the time for, to write it or to go by it."""


class MovableClock(SystemClock):
    """The machine's clock, moved by so much."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def seconds_until(self, moment_ms: int) -> float:
        return super().seconds_until(moment_ms - self.ahead_ms)


class Recorded:
    """Stands before a store, and keeps what it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []
        self.farthest_ms = 0
        """How far a time that it was given to write was from the machine's, at most."""
        self.after: Callable[[str, Any], None] = lambda _, __: None
        """Is called with what it was asked for, and what it answers."""

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
