"""Receipts: what a lane says of what it did, as rows that flow through Spark.

One row for each message that was published and acknowledged, and one for each window that was served or
skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

FIRED, SERVED, SKIPPED, STOPPED = "fired", "served", "skipped", "stopped"
"""A message was published; a window was served; a window was over before its lane came to it."""

SCHEMA = pa.schema(
    [
        pa.field("outcome", pa.string()),
        pa.field("window", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("due", pa.timestamp("us", tz="UTC")),
        pa.field("fired", pa.timestamp("us", tz="UTC")),
        pa.field("lateness_ms", pa.float64()),
        pa.field("redelivered", pa.bool_()),
        pa.field("node", pa.string()),
    ]
)
DDL = (
    "outcome STRING, window BIGINT, id STRING, due TIMESTAMP, fired TIMESTAMP, lateness_ms DOUBLE, "
    "redelivered BOOLEAN, node STRING"
)

LATENESS_BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 60_000)
"""The bounds of the histogram: so many were at most so late."""


class Fired(NamedTuple):
    id: str
    due_ms: int
    fired_us: int
    redelivered: bool


def as_batch(fired: Sequence[Fired], *, outcome: str, window: int, node: str) -> pa.RecordBatch:
    """The receipts of a window: one for each message, and one for the window."""
    count = len(fired)
    late = [each.fired_us / 1000 - each.due_ms for each in fired]
    columns = [
        pa.array([FIRED] * count + [outcome], pa.string()),
        pa.array([window] * (count + 1), pa.int64()),
        pa.array([each.id for each in fired] + [None], pa.string()),
        _moments([each.due_ms * 1000 for each in fired]),
        _moments([each.fired_us for each in fired]),
        pa.array([*late, None], pa.float64()),
        pa.array([each.redelivered for each in fired] + [None], pa.bool_()),
        pa.array([node] * (count + 1), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _moments(moments_us: list[int]) -> pa.Array:
    return pa.array([*moments_us, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))


@dataclass(slots=True)
class LatenessHistogram:
    """A histogram of lateness that can be added to, and asked for percentiles."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))
    """How many lie within each bound and above the one before; the last are later than all bounds."""

    def add(self, counts: Sequence[int]) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, counts, strict=True)]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_ms(self, part: float) -> float | None:
        """A bound that at least this part of all keep; None if there are none, inf beyond all bounds."""
        if not self.total:
            return None
        seen = 0
        for bound, count in zip((*LATENESS_BOUNDS_MS, float("inf")), self.counts, strict=True):
            seen += count
            if seen >= part * self.total:
                return float(bound)
        raise AssertionError("unreachable")
