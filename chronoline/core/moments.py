"""When each of many items needs attention next: those that changed are asked, the others are not looked at.

A loader with a thousand consumers that asked each of them at every wake-up would do little else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_SPARE = 64


class Moments(Generic[Item]):
    """The items by their moment. `moment_of` answers for a given `now`; None means not before a change."""

    def __init__(self, moment_of: Callable[[Item, int], int | None]) -> None:
        self._moment_of = moment_of
        self._changed: dict[Item, None] = {}
        self._planned: dict[Item, int] = {}
        # Entries whose moment is no longer the planned one are stale.
        self._heap: list[tuple[int, int, Item]] = []
        self._order = 0

    def touch(self, item: Item) -> None:
        """The item has changed, or is new: its moment is asked for again."""
        self._changed[item] = None

    def forget(self, item: Item) -> None:
        self._changed.pop(item, None)
        self._planned.pop(item, None)

    def due(self, now_ms: int, limit: int | None = None) -> list[Item]:
        """The items whose moment has come, in the order of their moments; they count as changed then.

        Items beyond the limit keep their place before items that become due later.
        """
        self._plan(now_ms)
        ready: list[Item] = []
        while self._heap and self._heap[0][0] <= now_ms and len(ready) != limit:
            moment, _, item = heapq.heappop(self._heap)
            if self._planned.get(item) == moment:
                del self._planned[item]
                self._changed[item] = None
                ready.append(item)
        return ready

    def next_at(self, now_ms: int) -> int | None:
        """The earliest moment; None if no item has one."""
        self._plan(now_ms)
        while self._heap and self._planned.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _plan(self, now_ms: int) -> None:
        changed, self._changed = self._changed, {}
        for item in changed:
            moment, planned = self._moment_of(item, now_ms), self._planned.get(item)
            if moment is None:
                self._planned.pop(item, None)
            elif planned is not None and planned <= moment <= now_ms:
                continue  # it waits since then: "at once" does not send it back to the end
            elif planned != moment:
                self._planned[item] = moment
                self._push(moment, item)
        if len(self._heap) > 2 * len(self._planned) + _SPARE:
            self._heap = []
            for item, moment in self._planned.items():
                self._push(moment, item)

    def _push(self, moment: int, item: Item) -> None:
        self._order += 1
        heapq.heappush(self._heap, (moment, self._order, item))
