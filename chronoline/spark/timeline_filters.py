"""Filters of a timeline: how conditions on columns narrow the part that is read.

A condition only narrows the request to the store; Spark checks every row again. So a condition that cannot
be expressed here, or only roughly, may be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Message
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.status import Status, status_of
from chronoline.runtime.timestamps import to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A part of a timeline."""

    buckets: int
    """Of the topic."""
    ranges: tuple[BucketRange, ...]
    start: int = 0
    end: int | None = None
    """By `ts`; none is after everything."""
    due_start: int = 0
    due_end: int | None = None
    statuses: frozenset[Status] = frozenset(Status)
    unheld_end: int | None = None
    """Messages at or behind this `ts` are wanted only if they name a holder."""
    ids: frozenset[str] | None = None
    """None: all."""

    def within(self, ranges: Iterable[BucketRange]) -> Wanted:
        """Only these buckets of it."""
        cuts = [
            BucketRange(max(one.start, other.start), min(one.stop, other.stop))
            for one in self.ranges
            for other in ranges
        ]
        real = [cut for cut in cuts if cut.start < cut.stop]
        return replace(self, ranges=tuple(merge_ranges(real, self.buckets)))

    def between(self, start: int = 0, end: int | None = None) -> Wanted:
        """Only messages in this range of `ts`."""
        ends = [
            max(0, each) for each in (self.end, end) if each is not None and each <= MAX_TIME_MS
        ]
        return replace(self, start=max(self.start, start), end=min(ends, default=None))

    def due_between(self, start: int = 0, end: int | None = None) -> Wanted:
        """Only messages in this range of `due`. `ts` is never before it."""
        ends = [
            max(0, each) for each in (self.due_end, end) if each is not None and each <= MAX_TIME_MS
        ]
        due_start = max(self.due_start, start)
        narrowed = replace(self, due_start=due_start, due_end=min(ends, default=None))
        return narrowed.between(start=due_start)

    def named(self, ids: Iterable[str]) -> Wanted:
        """Only messages with these ids."""
        named = frozenset(ids)
        return replace(self, ids=named if self.ids is None else self.ids & named)

    def having(self, statuses: Iterable[Status], now_ms: int) -> Wanted:
        """Only messages in these statuses, which also bounds `ts`."""
        left = self.statuses & frozenset(statuses)
        narrowed = replace(self, statuses=left)
        if Status.AVAILABLE not in left:
            narrowed = narrowed.between(start=now_ms + 1)
        if left == {Status.AVAILABLE}:
            return narrowed.between(end=now_ms + 1)
        # A message that lies ahead and does not wait is held.
        return narrowed if Status.WAITING in left else replace(narrowed, unheld_end=now_ms + 1)

    @property
    def scan_end(self) -> int | None:
        """Where a scan by `ts` ends. Messages behind it are wanted only if `with_held` says so."""
        ends = (self.end, self.due_end, self.unheld_end)
        return min((end for end in ends if end is not None), default=None)

    @property
    def with_held(self) -> bool:
        """Whether messages behind the scan may be wanted: a lease moves `ts` behind `due`."""
        return self.scan_end != self.end

    def matches(self, message: Message, now_ms: int) -> bool:
        ts, due = message.ts, message.due
        return (
            self.start <= ts
            and (self.end is None or ts < self.end)
            and self.due_start <= due
            and (self.due_end is None or due < self.due_end)
            and (self.ids is None or message.id in self.ids)
            and any(start <= message.bucket < stop for start, stop in self.ranges)
            and status_of(ts, message.lock_consumer is not None, now_ms) in self.statuses
        )

    @property
    def is_empty(self) -> bool:
        over = self.end is not None and self.end <= self.start
        over = over or (self.due_end is not None and self.due_end <= self.due_start)
        nothing = not self.ranges or not self.statuses or self.ids == frozenset()
        return nothing or over or self.start > MAX_TIME_MS


def split(ranges: Sequence[BucketRange], parts: int) -> list[tuple[BucketRange, ...]]:
    """The same buckets in `parts` parts of about the same size, or fewer if there are fewer buckets."""
    total = sum(stop - start for start, stop in ranges)
    parts = min(parts, total)
    borders = [total * part // parts for part in range(parts + 1)] if parts else []
    return [tuple(_cut(ranges, low, high)) for low, high in pairwise(borders)]


def _cut(ranges: Sequence[BucketRange], low: int, high: int) -> Iterable[BucketRange]:
    """The buckets of the ranges from the one in place `low` up to the one in place `high`."""
    passed = 0
    for start, stop in ranges:
        first, last = max(low - passed, 0), min(high - passed, stop - start)
        if first < last:
            yield BucketRange(start + first, start + last)
        passed += stop - start


def narrow(wanted: Wanted, condition: Filter, now_ms: int) -> Wanted:
    """The part that is left under a condition."""
    match condition:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return _narrow_equal(wanted, column, [value], now_ms)
        case In((column,), values):
            return _narrow_equal(wanted, column, list(values), now_ms)
        case GreaterThanOrEqual((column,), value) | LessThan((column,), value):
            above = isinstance(condition, GreaterThanOrEqual)
            return _narrow_order(wanted, column, value, above=above, inclusive=above)
        case GreaterThan((column,), value) | LessThanOrEqual((column,), value):
            above = isinstance(condition, GreaterThan)
            return _narrow_order(wanted, column, value, above=above, inclusive=not above)
    return wanted


def _narrow_equal(wanted: Wanted, column: str, values: list[object], now_ms: int) -> Wanted:
    if not values:
        return wanted
    match column:
        case "id" if all(isinstance(each, str) for each in values):
            return wanted.named(str(each) for each in values)
        case "bucket" if all(isinstance(each, int) for each in values):
            real = [int(each) for each in values if isinstance(each, int)]
            return wanted.within(BucketRange(each, each + 1) for each in real)
        case "status" if all(isinstance(each, str) for each in values):
            return wanted.having([each for each in Status if each.value in values], now_ms)
        case "ts" | "due":
            times = [each for each in values if isinstance(each, datetime) and each.tzinfo]
            if len(times) == len(values):
                low = _narrow_order(wanted, column, min(times), above=True, inclusive=True)
                return _narrow_order(low, column, max(times), above=False, inclusive=True)
    return wanted


def _narrow_order(
    wanted: Wanted, column: str, value: object, *, above: bool, inclusive: bool
) -> Wanted:
    if column == "bucket" and isinstance(value, int):
        cut = max(0, min(wanted.buckets, value if above is inclusive else value + 1))
        kept = BucketRange(cut, wanted.buckets) if above else BucketRange(0, cut)
        return wanted.within([kept])
    if column not in ("ts", "due") or not isinstance(value, datetime) or value.tzinfo is None:
        return wanted
    up_ms = to_ms(value)
    down_ms = up_ms if value.microsecond % 1_000 == 0 else up_ms - 1
    bounded = wanted.due_between if column == "due" else wanted.between
    if above:
        return bounded(start=up_ms if inclusive else down_ms + 1)
    return bounded(end=down_ms + 1 if inclusive else up_ms)
