"""Shares cover every partition once."""

from hypothesis import given
from hypothesis import strategies as st

from chronoline.log.groups import share_of


@given(st.sets(st.text(max_size=3), min_size=1, max_size=20), st.integers(1, 100))
def test_shares_cover_every_partition_once_and_are_even(members: set[str], partitions: int) -> None:
    shares = [share_of(member, list(members), partitions) for member in members]
    covered = sorted(partition for share in shares for partition in share)
    assert covered == list(range(partitions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_non_member_has_no_share() -> None:
    assert list(share_of("c", ["a", "b"], 4)) == []


def test_the_order_of_names_does_not_matter() -> None:
    assert share_of("b", ["b", "a"], 4) == share_of("b", ["a", "b"], 4) == range(2, 4)
