"""Placement: every bucket has exactly one member, the same on every node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.placement import deal_buckets, deal_partitions, deal_ranges, split_range
from chronoline.core.ranges import BucketRange

names = st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=9)


@given(names, st.integers(1, 300))
def test_buckets_are_dealt_exactly_once_and_evenly(members: set[str], buckets: int) -> None:
    shares = deal_ranges(members, buckets)
    dealt = sorted(bucket for share in shares.values() for bucket in range(*share))
    assert dealt == list(range(buckets))
    sizes = [share.stop - share.start for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(names, st.integers(1, 300))
def test_every_member_computes_the_same_shares(members: set[str], buckets: int) -> None:
    shares = deal_ranges(sorted(members, reverse=True), buckets)
    assert {me: deal_buckets(members, me, buckets) for me in members} == shares


def test_three_members_share_2048_buckets() -> None:
    """Ranges are contiguous, and the last one ends at bucket 2047."""
    shares = deal_ranges(["C", "A", "B"], 2_048)
    last = {name: (share.start, share.stop - 1) for name, share in shares.items()}
    assert last == {"A": (0, 682), "B": (683, 1_364), "C": (1_365, 2_047)}


def test_broker_serves_the_ranges_of_its_members() -> None:
    """A broker with the consumers A and C serves their two ranges."""
    shares = deal_ranges(["A", "B", "C"], 2_048)
    served = [(shares[name].start, shares[name].stop - 1) for name in ("A", "C")]
    assert served == [(0, 682), (1_365, 2_047)]


def test_more_members_than_buckets_leave_some_without() -> None:
    shares = deal_ranges("abcde", 2)
    assert sorted(share.stop - share.start for share in shares.values()) == [0, 0, 0, 1, 1]


def test_unlisted_member_counts_itself() -> None:
    assert deal_buckets(["a"], "b", 64) == (32, 64)
    assert deal_ranges([], 64) == {}


@given(names, st.sets(st.integers(0, 100)))
def test_each_partition_has_one_member_and_shares_are_even(
    members: set[str], partitions: set[int]
) -> None:
    shares = [deal_partitions(members, me, sorted(partitions)) for me in members]
    assert sorted(each for share in shares for each in share) == sorted(partitions)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))
def test_range_is_cut_into_neighbours(start: int, size: int, pieces: int) -> None:
    cut = split_range(BucketRange(start, start + size), pieces)
    assert len(cut) == pieces
    assert [bucket for piece in cut for bucket in range(*piece)] == list(range(start, start + size))


def test_unseen_member_counts_itself() -> None:
    assert deal_partitions([], "b", [3, 1]) == [1, 3]
