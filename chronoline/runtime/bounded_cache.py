"""A cache of bounded size."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most `most` entries: a new one takes the place of the oldest. Any thread may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Key, Value] = {}  # in the order of insertion
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Adds an entry, or changes its value without changing its age."""
        with self._lock:
            self._entries[key] = value
            if len(self._entries) > self._most:
                del self._entries[next(iter(self._entries))]

    def pop(self, key: Key) -> Value | None:
        """Removes an entry; None if there is none."""
        with self._lock:
            return self._entries.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        """The current keys, the oldest first."""
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
