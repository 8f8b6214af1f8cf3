"""How much of each partition a trigger takes."""

import pytest

from chronoline.spark.log_reader import share


@pytest.mark.parametrize(
    ("lags", "most", "expected"),
    [
        ([5, 5], 10, [5, 5]),
        ([5, 5], 100, [5, 5]),
        ([10, 30], 20, [5, 15]),
        ([1, 1, 1], 2, [1, 1, 0]),
        ([1, 1_000], 2, [0, 2]),
        ([0, 3], 1, [0, 1]),
        ([0, 0], 1, [0, 0]),
    ],
)
def test_each_partition_gets_its_share(lags: list[int], most: int, expected: list[int]) -> None:
    start = {partition: 100 * partition for partition in range(len(lags))}
    end = {partition: start[partition] + lag for partition, lag in enumerate(lags)}
    shared = share(start, end, most)
    assert [shared[partition] - start[partition] for partition in start] == expected


def test_shares_move_on_until_everything_is_read() -> None:
    start, end = {0: 0, 1: 0, 2: 0}, {0: 1, 1: 7, 2: 1_000}
    for _ in range(1_000):
        shared = share(start, end, 13)
        assert 0 < sum(shared.values()) - sum(start.values()) <= 13
        assert all(start[each] <= shared[each] <= end[each] for each in end)
        start = shared
        if start == end:
            break
    assert start == end
