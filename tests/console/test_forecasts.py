"""Counts of a topic for its page."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chronoline.broker.carrier import Carrier
from chronoline.console.forecasts import STATUSES, Forecasts
from chronoline.core.topic import Topic
from tests.broker.http.served import serving

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@asynccontextmanager
async def _filled(folder: Path) -> AsyncIterator[tuple[Forecasts, Carrier, Topic, int]]:
    """A topic with messages in each status, from a month ago to two years ahead."""
    async with serving(folder) as served:
        parts = served.node.parts
        assert parts is not None
        await served.create_topic("orders")
        now_ms, chance = parts.clock.now_ms(), random.Random(5)
        dues = [now_ms + chance.randint(-30 * _DAY_MS, 730 * _DAY_MS) for _ in range(40)]
        dues += [now_ms + chance.randint(_HOUR_MS, 2 * _DAY_MS) for _ in range(12)]
        dues += [now_ms - number * _DAY_MS for number in range(1, 9)]
        for number, due_ms in enumerate(dues):
            await served.put(f"u{number}", "orders", due_ms=due_ms)
        await served.receive("orders", consumer="worker", count=3, lease="1h")
        forecasts = Forecasts(parts.carrier, parts.clock)
        yield forecasts, parts.carrier, (await parts.topics.list())[0], now_ms
        forecasts.stop()


_RANGES = {
    "next hour": (0, _HOUR_MS, _HOUR_MS // 200),
    "next week": (0, 7 * _DAY_MS, 3_024_000),
    "next month": (0, 30 * _DAY_MS, 4 * _HOUR_MS),
    "next year": (0, 365 * _DAY_MS, 44 * _HOUR_MS),
    "from last week": (-6 * _DAY_MS, 20 * _DAY_MS, 3 * _HOUR_MS),
    "from before the year": (-20 * _DAY_MS, 60 * _DAY_MS, 8 * _HOUR_MS),
    "beyond the year": (200 * _DAY_MS, 365 * _DAY_MS, 44 * _HOUR_MS),
}
"""Start, duration, and the step of its bars."""


def test_bars_are_exact(tmp_path: Path) -> None:
    async def play() -> None:
        async with _filled(tmp_path) as (forecasts, carrier, topic, now_ms):
            for name, (start_ms, span_ms, step_ms) in _RANGES.items():
                start, end = now_ms + start_ms, now_ms + start_ms + span_ms
                rollup = None
                while rollup is None:
                    rollup = await forecasts.bars(topic, start, end, 200)
                bars = rollup.value
                assert bars.step_ms == step_ms, name
                assert bars.starts[0] <= start < bars.starts[0] + step_ms, name
                assert bars.end - step_ms < end <= bars.end, name
                exact = await carrier.forecast(
                    topic.uid, start=bars.start, end=min(bars.end, end), step_ms=step_ms
                )
                for status in STATUSES:
                    counted = [getattr(each.counts, status) for each in exact]
                    assert list(bars.counts[status])[:-1] == counted[:-1], name
                    assert bars.counts[status][-1] >= counted[-1], name  # it ends behind the range

    asyncio.run(play())


def test_total_is_that_of_all_messages(tmp_path: Path) -> None:
    async def play() -> None:
        async with _filled(tmp_path) as (forecasts, carrier, topic, _):
            year = None
            while year is None:
                year = await forecasts.year(topic)
            assert year.value.total == await carrier.count(topic.uid, start=0, end=None)
            assert year.value.total.total == 60
            assert year.value.total.processing == 3
            assert sum(map(sum, year.value.hours.counts.values())) < 60

    asyncio.run(play())


def test_ranges_of_a_year_share_one_count(tmp_path: Path) -> None:
    async def play() -> None:
        async with _filled(tmp_path) as (forecasts, _, topic, now_ms):
            first = second = None
            while first is None or second is None:
                first = await forecasts.bars(topic, now_ms, now_ms + 30 * _DAY_MS, 200)
                second = await forecasts.bars(topic, now_ms + 1, now_ms + 90 * _DAY_MS, 200)
            assert first.at_s == second.at_s

    asyncio.run(play())
