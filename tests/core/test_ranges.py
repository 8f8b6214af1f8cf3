"""Bucket ranges are merged into the same buckets, sorted and apart."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.core.ranges import BucketRange, cut_ranges, merge_ranges

BUCKETS = 12
ranges_within = st.lists(
    st.tuples(st.integers(0, BUCKETS), st.integers(0, BUCKETS)).map(
        lambda ends: BucketRange(min(ends), max(ends))
    )
)


def buckets_in(ranges: list[BucketRange]) -> set[int]:
    return {bucket for start, stop in ranges for bucket in range(start, stop)}


@given(ranges_within)
def test_merging_keeps_the_buckets(ranges: list[BucketRange]) -> None:
    assert buckets_in(merge_ranges(ranges, BUCKETS)) == buckets_in(ranges)


@given(ranges_within)
def test_merged_ranges_are_sorted_and_disjoint(ranges: list[BucketRange]) -> None:
    merged = merge_ranges(ranges, BUCKETS)
    assert all(start < stop for start, stop in merged)
    assert all(left.stop < right.start for left, right in pairwise(merged))


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, BUCKETS + 1), (3, 2)])
def test_a_range_outside_of_the_topic_is_named(start: int, stop: int) -> None:
    with pytest.raises(InvalidInput, match=rf"\[{start}, {stop}\).*\[0, {BUCKETS}\)"):
        merge_ranges([BucketRange(0, 1), BucketRange(start, stop)], BUCKETS)


@pytest.mark.parametrize("ranges", [BucketRange(0, 4), None, [5], ["ab"], [(0,)], 7])
def test_invalid_list_of_ranges_is_refused(ranges: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a list of BucketRange"):
        merge_ranges(ranges, 64)


@given(ranges_within, ranges_within.filter(bool))
def test_cut_parts_are_inside_or_outside(ranges: list[BucketRange], by: list[BucketRange]) -> None:
    inside, outside = cut_ranges(ranges, by[0])
    wanted = sorted(bucket for each in ranges for bucket in range(*each))
    found = [[bucket for each in part for bucket in range(*each)] for part in (inside, outside)]
    assert sorted(found[0] + found[1]) == wanted
    assert sorted(found[0]) == [bucket for bucket in wanted if bucket in range(*by[0])]
    assert all(each.start < each.stop for each in (*inside, *outside))


@given(ranges_within.filter(bool), st.sets(st.integers(0, BUCKETS - 1)))
def test_range_has_one_of_some_buckets(ranges: list[BucketRange], buckets: set[int]) -> None:
    wanted = bool(buckets_in(ranges[:1]) & buckets)
    assert ranges[0].has_any(sorted(buckets)) is wanted
