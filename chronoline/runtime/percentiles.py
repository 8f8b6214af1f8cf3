"""A summary of how late things were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Percentiles in ms: the smallest value that so many of all do not exceed. All 0 if count is 0."""

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


PERCENTILES = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms", "max": "max_ms"}


def medians_of(latenesses: Sequence[Lateness]) -> dict[str, float]:
    """The median of each percentile over several rounds."""
    return {
        name: median(getattr(each, attribute) for each in latenesses)
        for name, attribute in PERCENTILES.items()
    }
