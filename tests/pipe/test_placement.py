"""Dealing: every partition has exactly one pipe, the same everywhere."""

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.ranges import BucketRange
from chronoline.pipe.placement import deal_partitions, split_range

names = st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=9)


@given(names, st.sets(st.integers(0, 100)))
def test_partitions_are_dealt_exactly_once_and_evenly(
    members: set[str], partitions: set[int]
) -> None:
    shares = [deal_partitions(members, me, sorted(partitions)) for me in members]
    assert sorted(each for share in shares for each in share) == sorted(partitions)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))
def test_a_range_is_cut_into_neighbours(start: int, size: int, pieces: int) -> None:
    cut = split_range(BucketRange(start, start + size), pieces)
    assert len(cut) == pieces
    assert [bucket for piece in cut for bucket in range(*piece)] == list(range(start, start + size))


def test_whoever_is_not_seen_yet_counts_itself() -> None:
    assert deal_partitions([], "b", [3, 1]) == [1, 3]
