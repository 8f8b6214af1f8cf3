"""Lateness: a histogram for running counts, and exact percentiles of a list."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

LATENESS_BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 60_000)
"""The upper bounds of the buckets."""
_SECOND_MS = 1_000


@dataclass(slots=True)
class LatenessHistogram:
    """A histogram of lateness that can be added to, and asked for percentiles."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))
    """The count of each bucket; the last one lies above all bounds."""
    sum_ms: float = 0.0
    """The sum of all latenesses."""
    max_ms: float = 0.0
    """The largest lateness, or more where it is not known."""

    def add(self, counts: Sequence[int], sum_ms: float, max_ms: float | None = None) -> None:
        """Adds another histogram. No lateness exceeds the sum, so that is the largest of an unknown one."""
        self.counts = [mine + more for mine, more in zip(self.counts, counts, strict=True)]
        self.sum_ms += sum_ms
        self.max_ms = max(self.max_ms, sum_ms if max_ms is None else max_ms)

    def observe(self, late_ms: float) -> None:
        self.counts[bisect_left(LATENESS_BOUNDS_MS, late_ms)] += 1
        self.sum_ms += late_ms
        self.max_ms = max(self.max_ms, late_ms)

    def since(self, before: LatenessHistogram) -> LatenessHistogram:
        """The latenesses that came after an earlier copy of the same histogram."""
        counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        sum_ms = self.sum_ms - before.sum_ms
        return LatenessHistogram(counts, sum_ms, min(self.max_ms, sum_ms))

    def copy(self) -> LatenessHistogram:
        return LatenessHistogram(list(self.counts), self.sum_ms, self.max_ms)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound in seconds, as Prometheus wants them."""
        bounds = [*(str(bound / 1000) for bound in LATENESS_BOUNDS_MS), "+Inf"]
        total = 0
        buckets = []
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets

    def percentile_ms(self, part: float) -> float | None:
        """A bound that at least this part keep: of a bucket, or the largest; None if there are none."""
        if not self.total:
            return None
        seen = 0
        for bound, count in zip((*LATENESS_BOUNDS_MS, float("inf")), self.counts, strict=True):
            seen += count
            if seen >= part * self.total:
                return min(float(bound), self.max_ms)
        raise AssertionError("unreachable")


def show_lateness(late_ms: float) -> str:
    """A lateness in words, rounded up: 3 ms, 5.6 s."""
    if late_ms < _SECOND_MS:
        return f"{max(1, math.ceil(late_ms))} ms"
    return f"{math.ceil(late_ms / 100) / 10:,g} s"


def show_bound(late_ms: float | None) -> str:
    """A percentile of a histogram in words; a dash if there is none."""
    return "–" if late_ms is None else f"≤ {show_lateness(late_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Exact percentiles in ms: the smallest value that this part of all do not exceed; 0 without values."""

    count: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @classmethod
    def of(cls, values_ms: Iterable[float]) -> Self:
        ordered = sorted(values_ms)
        return cls(
            count=len(ordered),
            p50_ms=_percentile(ordered, 500),
            p99_ms=_percentile(ordered, 990),
            p999_ms=_percentile(ordered, 999),
            max_ms=_percentile(ordered, 1000),
        )


def _percentile(ordered: list[float], per_mille: int) -> float:
    if not ordered:
        return 0.0
    return ordered[-(-len(ordered) * per_mille // 1000) - 1]
