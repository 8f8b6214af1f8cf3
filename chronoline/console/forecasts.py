"""Counts of a topic for its page: the messages of now, and the forecast of any range.

One read of the topic's index counts the messages of each hour of a year. The tiles of the page and the bars
of long ranges are sums of these hours, whatever range is dragged and zoomed to, and have the count's age.
Bars of less than an hour, and those outside of the year, are counted by the index when they are asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from chronoline.broker.carrier import Carrier
from chronoline.console.rollups import Rollup, Rollups
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Counts, ForecastStep

STATUSES = ("available", "processing", "waiting")
_HOUR_MS = 3_600_000
_HOURS_PAST = 7 * 24
_HOURS = _HOURS_PAST + 373 * 24
_PIECE_MS = 20 * 24 * _HOUR_MS
"""A year is read in pieces: of a topic of millions, all at once would take longer than the store may."""
_MOST_YEARS = 100
"""The topics whose hours are kept: some 200 KB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Counts by status of steps that follow each other."""

    start: int
    step_ms: int
    counts: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, steps: Sequence[ForecastStep], step_ms: int) -> Bars:
        counts = {
            status: array("Q", [getattr(each.counts, status) for each in steps])
            for status in STATUSES
        }
        return cls(start=steps[0].start, step_ms=step_ms, counts=counts)

    @property
    def starts(self) -> list[int]:
        number = len(self.counts[STATUSES[0]])
        return [self.start + place * self.step_ms for place in range(number)]

    @property
    def end(self) -> int:
        return self.start + len(self.counts[STATUSES[0]]) * self.step_ms

    def merged(self, start: int, end: int, step_ms: int) -> Bars:
        """The bars of a range, in longer steps. The first one begins at a multiple of its step."""
        first = start // step_ms * step_ms
        size = step_ms // self.step_ms
        places = [(at - self.start) // self.step_ms for at in range(first, end, step_ms)]
        counts = {
            status: [sum(each[max(0, place) : place + size]) for place in places]
            for status, each in self.counts.items()
        }
        return Bars(start=first, step_ms=step_ms, counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicYear:
    """All messages of a topic, and those of each hour of a year."""

    total: Counts
    hours: Bars


class Forecasts:
    """The counts of the topics whose pages are open. Owned by the event loop."""

    def __init__(self, carrier: Carrier, clock: Clock) -> None:
        self._carrier = carrier
        self._clock = clock
        self._years: Rollups[TopicYear] = Rollups(most=_MOST_YEARS)
        self._bars: Rollups[Bars] = Rollups()

    def stop(self) -> None:
        """Ends counts under way. May be called twice."""
        self._years.stop()
        self._bars.stop()

    async def year(self, topic: Topic) -> Rollup[TopicYear] | None:
        """None while it is counted for the first time."""
        return await self._years.get(topic.uid, partial(self._count_year, topic))

    async def bars(self, topic: Topic, start: int, end: int, most: int) -> Rollup[Bars] | None:
        """At most about `most` bars of a range. None while they are counted for the first time."""
        step_ms = max(1, -(-(end - start) // most))
        if step_ms >= _HOUR_MS:
            step_ms = -(-step_ms // _HOUR_MS) * _HOUR_MS
            year = await self.year(topic)
            if year is None:
                return None
            hours = year.value.hours
            if hours.start <= start and end <= hours.end:
                return Rollup(hours.merged(start, end, step_ms), year.at_s, year.took_s)
        key = (topic.uid, start, end, step_ms)
        return await self._bars.get(key, partial(self._count_bars, topic, start, end, step_ms))

    async def _count_year(self, topic: Topic) -> TopicYear:
        count, uid = self._carrier.count, topic.uid
        start = max(0, (self._clock.now_ms() // _HOUR_MS - _HOURS_PAST) * _HOUR_MS)
        end = start + _HOURS * _HOUR_MS
        steps: list[ForecastStep] = []
        for at in range(start, end, _PIECE_MS):
            piece_end = min(at + _PIECE_MS, end)
            steps += await self._carrier.forecast(uid, start=at, end=piece_end, step_ms=_HOUR_MS)
        hours = Bars.of(steps, _HOUR_MS)
        before, after = await count(uid, start=0, end=start), await count(uid, start=end, end=None)
        total = Counts(
            **{
                status: sum(hours.counts[status]) + getattr(before, status) + getattr(after, status)
                for status in STATUSES
            }
        )
        return TopicYear(total=total, hours=hours)

    async def _count_bars(self, topic: Topic, start: int, end: int, step_ms: int) -> Bars:
        found = await self._carrier.forecast(topic.uid, start=start, end=end, step_ms=step_ms)
        return Bars.of(found, step_ms)
