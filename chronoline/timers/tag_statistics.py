"""Statistics by tag: the number of timers, now and over the last five minutes.

The past of a tag is kept in slices of ten seconds, those in which its number changed; between them it was
constant. Each slice has the time-weighted sums from which average and variance follow, and the high and low
water. Time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

WINDOW_MS = 300_000
SLICE_MS = 10_000


@dataclass(frozen=True, slots=True)
class TagFigures:
    """The number of timers of a tag now, and over the last five minutes."""

    count: int
    average: float
    variance: float
    high: int
    low: int


@dataclass(slots=True)
class _Sums:
    """Time-weighted sums: of milliseconds, of the number, and of its square."""

    high: int
    low: int
    length_ms: int = 0
    area: int = 0
    square: int = 0

    def hold(self, count: int, length_ms: int) -> None:
        """Adds a stretch of time with a constant number."""
        self.length_ms += length_ms
        self.area += count * length_ms
        self.square += count * count * length_ms
        self.reach(count)

    def reach(self, count: int) -> None:
        self.high = max(self.high, count)
        self.low = min(self.low, count)

    def add(self, other: _Sums) -> None:
        self.length_ms += other.length_ms
        self.area += other.area
        self.square += other.square
        self.reach(other.high)
        self.reach(other.low)


@dataclass(slots=True)
class _Slice:
    """A slice of ten seconds in which the number changed, and the number before."""

    begin_ms: int
    before: int
    sums: _Sums

    @property
    def end_ms(self) -> int:
        return self.begin_ms + SLICE_MS


@dataclass(slots=True)
class _Tag:
    """The number of one tag, the moment of its last change, and its slices."""

    since_ms: int
    count: int = 0
    slices: deque[_Slice] = field(default_factory=deque)

    def add(self, added: int, now_ms: int) -> None:
        now_ms = max(now_ms, self.since_ms)
        begin_ms = now_ms // SLICE_MS * SLICE_MS
        if not self.slices or self.slices[-1].begin_ms != begin_ms:
            if self.slices:
                last = self.slices[-1]
                last.sums.hold(self.count, last.end_ms - self.since_ms)
            self.slices.append(_Slice(begin_ms, self.count, _Sums(self.count, self.count)))
        while self.slices[0].end_ms <= now_ms - WINDOW_MS:
            self.slices.popleft()
        sums = self.slices[-1].sums
        sums.hold(self.count, now_ms - max(self.since_ms, begin_ms))
        self.count += added
        self.since_ms = now_ms
        sums.reach(self.count)

    def figures(self, from_ms: int, now_ms: int) -> TagFigures:
        """The figures since `from_ms`; the first slice counts as a whole."""
        kept = [each for each in self.slices if each.end_ms > from_ms]
        first = kept[0].before if kept else self.count
        sums = _Sums(first, first)
        at_ms = from_ms
        for each in kept:
            sums.hold(each.before, max(0, each.begin_ms - at_ms))
            sums.add(each.sums)
            at_ms = self.since_ms if each is kept[-1] else each.end_ms
        sums.hold(self.count, max(0, now_ms - at_ms))
        length_ms = sums.length_ms or 1
        average = sums.area / length_ms if sums.length_ms else float(self.count)
        # Whole numbers until the end: the difference of two large squares loses digits.
        variance = (sums.square * length_ms - sums.area * sums.area) / (length_ms * length_ms)
        return TagFigures(self.count, average, variance, sums.high, sums.low)


class TagStatistics:
    """Every tag that has a timer, or had one within the last five minutes."""

    def __init__(self) -> None:
        self._tags: dict[str, _Tag] = {}
        # Tags without a timer, with the time of their last change, the earliest first.
        self._idle: dict[str, int] = {}
        self._begun_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Starts counting, unless it has started before."""
        if self._begun_ms is None:
            self._begun_ms = now_ms

    def add(self, tag: str, added: int, now_ms: int) -> None:
        """Adds `by` to the number of a tag's timers."""
        self.begin(now_ms)
        self._forget_idle(now_ms)
        known = self._tags.get(tag)
        if known is None:
            known = self._tags[tag] = _Tag(max(self._begun_ms or 0, now_ms - WINDOW_MS))
        known.add(added, now_ms)
        self._idle.pop(tag, None)
        if not known.count:
            self._idle[tag] = now_ms

    def counts(self) -> dict[str, int]:
        """The number of timers of each tag that has some."""
        return {tag: each.count for tag, each in self._tags.items() if each.count}

    def figures(self, now_ms: int) -> Iterator[tuple[str, TagFigures]]:
        """The figures of each tag that has a timer, or had one within the last five minutes."""
        self._forget_idle(now_ms)
        from_ms = max(self._begun_ms or 0, now_ms - WINDOW_MS)
        for tag, each in self._tags.items():
            yield tag, each.figures(from_ms, now_ms)

    def _forget_idle(self, now_ms: int) -> None:
        while self._idle:
            tag, since_ms = next(iter(self._idle.items()))
            if since_ms > now_ms - WINDOW_MS:
                break
            del self._idle[tag], self._tags[tag]
