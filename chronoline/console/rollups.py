"""Rollups: counts of many messages, with their age.

A page must not wait until millions are counted. A count that takes longer than a moment goes on in the
background, and the page shows the last one and how old it is; the page asks again for the new one. Counts
of the same range share one query. A count is repeated at most after ten times as long as it took: an open
page of a large topic costs the store a tenth of a core at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from chronoline.runtime.bounded_cache import BoundedCache

Value = TypeVar("Value")
_MOST = 1_000
_MOST_COUNTING = 16
"""Counts under way at a time: a page can ask for any range, and need not wait."""
_PATIENCE_S = 0.3
"""The longest time for which a page waits for a count."""
_LEAST_AGE_S = 1.0
_REST = 10
"""The rest after a count, as a multiple of the time that it took."""


@dataclass(frozen=True, slots=True)
class Rollup(Generic[Value]):
    """A count, and when it was made."""

    value: Value
    at_s: float
    took_s: float

    def age_s(self, now_s: float) -> float:
        return now_s - self.at_s

    def is_due(self, now_s: float, least_age_s: float) -> bool:
        return self.age_s(now_s) >= max(least_age_s, _REST * self.took_s)


class Rollups(Generic[Value]):
    """Counts by their key. Owned by the event loop."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        *,
        least_age_s: float = _LEAST_AGE_S,
        most: int = _MOST,
    ) -> None:
        """`now_s` is a monotonic clock. A count is not repeated before it has this age; `most` are kept."""
        self._now_s = now_s
        self._least_age_s = least_age_s
        self._known: BoundedCache[Hashable, Rollup[Value]] = BoundedCache(most)
        self._counting: dict[Hashable, asyncio.Task[Rollup[Value]]] = {}

    async def get(
        self, key: Hashable, count: Callable[[], Awaitable[Value]]
    ) -> Rollup[Value] | None:
        """The newest count, after a moment; None while the first one is being made.

        Raises what the count raised, if there is no earlier one.
        """
        known = self._known.get(key)
        if known is not None and not known.is_due(self._now_s(), self._least_age_s):
            return known
        task = self._counting.get(key)
        if task is None and len(self._counting) >= _MOST_COUNTING:
            return known
        if task is None:
            task = asyncio.create_task(self._count(key, count), name="console: counting")
            task.add_done_callback(_look_at)
            self._counting[key] = task
        await asyncio.wait([task], timeout=_PATIENCE_S)
        if not task.done() or (task.exception() is not None and known is not None):
            return known
        return task.result()

    def stop(self) -> None:
        """Ends counts under way. May be called twice."""
        for task in self._counting.values():
            task.cancel()

    async def _count(self, key: Hashable, count: Callable[[], Awaitable[Value]]) -> Rollup[Value]:
        started_s = self._now_s()
        try:
            value = await count()
            rollup = Rollup(value, self._now_s(), self._now_s() - started_s)
            self._known.put(key, rollup)
            return rollup
        finally:
            del self._counting[key]


def _look_at(task: asyncio.Task[Rollup[Value]]) -> None:
    """Nobody may be left to hear of a failure; the next page counts again."""
    if not task.cancelled():
        task.exception()
