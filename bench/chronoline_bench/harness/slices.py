"""Lateness over time: percentiles of equal slices of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chronoline.core.lateness import Lateness

Point = tuple[int, float]
"""A moment of the wall clock in µs, and the lateness in ms of what was due then."""
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a run."""

    first_s: float
    """Its beginning, in seconds since the start of the run."""
    width_s: float
    late: Lateness

    @property
    def middle_s(self) -> float:
        return self.first_s + self.width_s / 2

    def __str__(self) -> str:
        return f"{self.first_s:g}–{self.first_s + self.width_s:g} s"


def slices_of(points: Iterable[Point], start_us: int, width_s: float) -> list[Slice]:
    """Returns the slices of a run in order; those in which nothing was due are left out."""
    width_us = round(width_s * SECOND_US)
    values: dict[int, list[float]] = {}
    for moment_us, late_ms in points:
        values.setdefault((moment_us - start_us) // width_us, []).append(late_ms)
    return [
        Slice(first_s=place * width_s, width_s=width_s, late=Lateness.of(late_ms))
        for place, late_ms in sorted(values.items())
        if place >= 0
    ]


def late_share(values_ms: Iterable[float], on_time_ms: float) -> float:
    """Returns the share of values above a bound; 0 without values."""
    values = list(values_ms)
    return sum(value > on_time_ms for value in values) / max(1, len(values))
