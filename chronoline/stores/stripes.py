"""Stripes: how bucket ranges become index ranges.

The head of a timeline is read through an index on (topic, stripe, ts). A topic's buckets fall into at
most 16 stripes of neighbouring buckets. A read of some ranges is then a merge of a few index ranges, and
the backlog of one stripe does not slow the others. With an index on ts alone, a reader of a few buckets
passes the backlog of all; with an index on single buckets, a reader of a topic of 2,048 buckets begins
2,048 times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from chronoline.core.ranges import BucketRange

STRIPES = 16


class Cell(NamedTuple):
    """The buckets of one stripe that lie in [start, stop)."""

    stripe: int
    start: int
    stop: int


def stripe_of(bucket: int, buckets: int) -> int:
    """The stripe of a bucket; it grows with the bucket."""
    return bucket * STRIPES // buckets


def cells_of(ranges: Iterable[BucketRange], buckets: int) -> list[Cell]:
    """The same buckets, cut at the borders of the stripes."""
    cells = []
    for start, stop in ranges:
        first, last = stripe_of(start, buckets), stripe_of(stop - 1, buckets)
        for stripe in range(first, last + 1):
            low = max(start, -(-stripe * buckets // STRIPES))
            high = min(stop, -(-(stripe + 1) * buckets // STRIPES))
            if low < high:
                cells.append(Cell(stripe, low, high))
    return cells
