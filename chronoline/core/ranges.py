"""Bucket ranges: half-open, and always whole buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chronoline.core.errors import InvalidInput


class BucketRange(NamedTuple):
    """The buckets from `start` up to, but not including, `stop`."""

    start: int
    stop: int

    def has_any(self, buckets: Sequence[int]) -> bool:
        """Whether one of these buckets, which are sorted, lies in the range."""
        place = bisect_left(buckets, self.start)
        return place < len(buckets) and buckets[place] < self.stop


def merge_ranges(ranges: Iterable[BucketRange], buckets: int) -> list[BucketRange]:
    """The same buckets as sorted ranges that neither touch nor overlap; empty ones are left out."""
    try:
        wanted = sorted((start + 0, stop + 0) for start, stop in ranges)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"ranges must be a list of BucketRange(start, stop), not {ranges!r:.100}"
        ) from error
    merged: list[BucketRange] = []
    for start, stop in wanted:
        if not 0 <= start <= stop <= buckets:
            raise InvalidInput(
                f"bucket range [{start}, {stop}) is not within the topic's buckets [0, {buckets})"
            )
        if start == stop:
            continue
        if merged and start <= merged[-1].stop:
            merged[-1] = BucketRange(merged[-1].start, max(stop, merged[-1].stop))
        else:
            merged.append(BucketRange(start, stop))
    return merged


def cut_ranges(
    ranges: Iterable[BucketRange], by: BucketRange
) -> tuple[list[BucketRange], list[BucketRange]]:
    """The parts of these ranges inside and outside of another one; empty parts are left out."""
    inside: list[BucketRange] = []
    outside: list[BucketRange] = []
    for start, stop in ranges:
        low, high = min(max(start, by.start), stop), max(min(stop, by.stop), start)
        if low >= high:
            outside.append(BucketRange(start, stop))
            continue
        inside.append(BucketRange(low, high))
        outside += [BucketRange(start, low), BucketRange(high, stop)]
    return inside, [each for each in outside if each.start < each.stop]
