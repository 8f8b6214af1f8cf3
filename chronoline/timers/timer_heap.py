"""A heap of timers by the moment of their next action. There is no tick.

Time is an argument. Moved and removed entries stay in the heap until their turn comes, or until they are
half of the heap; then the heap is rebuilt.
"""

from __future__ import annotations

import heapq

_FEW = 1_000
"""Fewer leftovers than this are not worth a rebuild."""
_ID_BITS = 64
_ID = (1 << _ID_BITS) - 1


class TimerHeap:
    """Ids by the moment of each; an id has one moment.

    An entry is one number, the moment before the id: half the memory of a pair, and faster to compare.
    """

    def __init__(self) -> None:
        self._entries: dict[int, int] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, timer_id: int) -> bool:
        return timer_id in self._entries

    def sooner_first(self, at_ms: int) -> list[int]:
        """All ids, first those whose moment comes by then."""
        after = (at_ms + 1) << _ID_BITS
        sooner = [timer_id for timer_id, entry in self._entries.items() if entry < after]
        return sooner + [timer_id for timer_id, entry in self._entries.items() if entry >= after]

    @property
    def held(self) -> int:
        """Entries in memory, leftovers included."""
        return len(self._heap)

    def put(self, timer_id: int, at_ms: int) -> None:
        """Sets, or moves, the moment of a timer."""
        entry = at_ms << _ID_BITS | timer_id
        if self._entries.get(timer_id) == entry:
            return
        self._entries[timer_id] = entry
        heapq.heappush(self._heap, entry)
        self._tidy()

    def remove(self, timer_id: int) -> None:
        """Removes a timer, if it is there."""
        if self._entries.pop(timer_id, None) is not None:
            self._tidy()

    def take(self, now_ms: int, limit: int) -> list[int]:
        """Removes and returns the timers whose moment has come, the earliest first."""
        taken: list[int] = []
        while len(taken) < limit and (at_ms := self.next_at()) is not None and at_ms <= now_ms:
            timer_id = heapq.heappop(self._heap) & _ID
            del self._entries[timer_id]
            taken.append(timer_id)
        return taken

    def next_at(self) -> int | None:
        """The earliest moment; None if there is none."""
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry & _ID) == entry:
                return entry >> _ID_BITS
            heapq.heappop(self._heap)
        return None

    def _tidy(self) -> None:
        leftovers = len(self._heap) - len(self._entries)
        if leftovers > _FEW and leftovers > len(self._entries):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
