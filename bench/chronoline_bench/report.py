"""The report of a bench: rows, each a figure beside its reference, and the counts that must be 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from chronoline.core.lateness import Lateness
from chronoline_bench.tally import Tally

SAME_MS = 2.0
"""A ratio of latencies holds also when the difference is smaller than this."""
PERCENTILES = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms", "max": "max_ms"}
_DIGITS = 4


def medians_of(latenesses: Sequence[Lateness]) -> dict[str, float]:
    """The median of each percentile over several rounds."""
    return {
        name: median(getattr(each, attribute) for each in latenesses)
        for name, attribute in PERCENTILES.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A bound on a row's ratio, or on its value if an absolute figure is promised."""

    at_least: float | None = None
    at_most: float | None = None
    value_at_least: float | None = None
    value_at_most: float | None = None

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:.3g}"
        if self.at_most is not None:
            return f"≤ {self.at_most:.3g}"
        if self.value_at_least is not None:
            return f"value ≥ {self.value_at_least:,g}"
        return f"value ≤ {self.value_at_most:,g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, its reference from the same run, and the bound on the two."""

    case: str
    metric: str
    value: float
    unit: str
    reference: str | None = None
    reference_value: float | None = None
    wanted: Wanted | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference_value if self.reference_value else None

    @property
    def holds(self) -> bool | None:
        """Whether the bound holds; None without a bound or a ratio."""
        wanted = self.wanted
        if wanted is None:
            return None
        if wanted.value_at_least is not None or wanted.value_at_most is not None:
            return _within(self.value, wanted.value_at_least, wanted.value_at_most)
        if self.ratio is None or self.reference_value is None:
            return None
        about_the_same = self.unit == "ms" and self.value - self.reference_value < SAME_MS
        if wanted.at_most is not None and about_the_same:
            return True
        return _within(self.ratio, wanted.at_least, wanted.at_most)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "metric": self.metric,
            "value": rounded(self.value),
            "unit": self.unit,
            "reference": self.reference,
            "reference_value": rounded(self.reference_value),
            "ratio": rounded(self.ratio),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of the run, and the lateness of the control, which only sleeps and wakes."""

    cores: int
    control: Lateness


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one run of a bench."""

    bench: str
    machine: Machine
    rows: tuple[Row, ...]
    tally: Tally = field(default_factory=Tally)
    notes: tuple[str, ...] = ()
    """How the figures were obtained; not in the JSON."""
    failures: tuple[str, ...] = ()
    """The cases that failed, and why."""

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "machine": {
                "cores": self.machine.cores,
                "control_p99_ms": rounded(self.machine.control.p99_ms),
            },
            "rows": [row.to_json() for row in self.rows],
            "lost": self.tally.lost,
            "duplicated": self.tally.duplicated,
            "early": self.tally.early,
        }


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def rounded(value: float | None) -> float | None:
    """Rounds to four significant digits; large whole numbers stay whole."""
    if value is None or value == 0:
        return value
    if abs(value) >= 10 ** (_DIGITS - 1):
        return round(value)
    return float(f"{value:.{_DIGITS}g}")
