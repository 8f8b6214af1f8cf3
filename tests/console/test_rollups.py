"""Counts with their age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chronoline.console.rollups import Rollups


class Counter:
    """A count that takes as long as the test wants."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.calls


def _play(play: Callable[[Counter, Rollups[int]], Awaitable[None]]) -> None:
    async def run() -> None:
        count = Counter()
        rollups: Rollups[int] = Rollups(lambda: count.now_s)
        await play(count, rollups)
        rollups.stop()

    asyncio.run(run())


def test_quick_count_is_answered_and_kept_for_a_second() -> None:
    async def play(count: Counter, rollups: Rollups[int]) -> None:
        first = await rollups.get("a", count)
        assert first is not None
        count.now_s += 0.9
        assert await rollups.get("a", count) is first
        count.now_s += 0.2
        again = await rollups.get("a", count)
        assert again is not None
        assert (first.value, again.value) == (1, 2)

    _play(play)


def test_long_count_is_shared_and_its_page_does_not_wait() -> None:
    async def play(count: Counter, rollups: Rollups[int]) -> None:
        count.gate.clear()
        assert await rollups.get("a", count) is None
        assert await rollups.get("a", count) is None
        assert count.calls == 1
        count.now_s += 5.0
        count.gate.set()
        found = await rollups.get("a", count)
        assert found is not None
        assert (found.value, found.took_s, count.calls) == (1, 5.0, 1)
        count.now_s += 49.0  # it rests ten times as long as it took
        assert await rollups.get("a", count) is found
        count.now_s += 2.0
        assert await rollups.get("a", count) is not found

    _play(play)


def test_number_of_counts_under_way_is_bounded() -> None:
    async def play(count: Counter, rollups: Rollups[int]) -> None:
        count.gate.clear()
        await asyncio.gather(*(rollups.get(each, count) for each in range(50)))
        assert count.calls == 16
        count.gate.set()
        await rollups.get(0, count)
        assert await rollups.get(49, count) is not None

    _play(play)


def test_while_a_count_is_repeated_the_last_one_is_shown_with_its_age() -> None:
    async def play(count: Counter, rollups: Rollups[int]) -> None:
        first = await rollups.get("a", count)
        count.gate.clear()
        count.now_s += 10.0
        shown = await rollups.get("a", count)
        assert shown is first
        assert shown is not None
        assert shown.age_s(count.now_s) == 10.0
        count.gate.set()

    _play(play)


def test_failed_count_leaves_the_last_one() -> None:
    async def play(count: Counter, rollups: Rollups[int]) -> None:
        count.error = ValueError("no")
        with pytest.raises(ValueError, match="no"):
            await rollups.get("a", count)
        count.error = None
        first = await rollups.get("a", count)
        count.error = ValueError("again")
        count.now_s += 10.0
        assert await rollups.get("a", count) is first

    _play(play)
