"""Windows: lanes take turns, and no ended window is begun."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.pipe.windows import window_of, windows_between

MS = 2_000


def test_lane_serves_its_own_windows() -> None:
    assert window_of(0, 2, window_ms=MS, now_ms=8_000) == (4, 8_000, 10_000)
    assert window_of(0, 2, window_ms=MS, now_ms=9_999) == (4, 8_000, 10_000)
    assert window_of(1, 2, window_ms=MS, now_ms=8_000) == (5, 10_000, 12_000)
    assert window_of(0, 2, window_ms=MS, now_ms=10_000) == (6, 12_000, 14_000)


@given(
    st.integers(0, 10**13), st.integers(1, 5), st.integers(0, 4), st.sampled_from([1, 999, 2_000])
)
def test_every_window_has_one_lane_and_is_not_over(
    now_ms: int, lanes: int, lane: int, window_ms: int
) -> None:
    windows = [window_of(each, lanes, window_ms=window_ms, now_ms=now_ms) for each in range(lanes)]
    current = now_ms // window_ms
    assert sorted(each.number for each in windows) == list(range(current, current + lanes))
    mine = window_of(lane % lanes, lanes, window_ms=window_ms, now_ms=now_ms)
    assert mine.number % lanes == lane % lanes
    assert mine.end_ms > now_ms
    assert mine.end_ms - mine.start_ms == window_ms


@pytest.mark.parametrize(
    ("last", "window", "lanes", "missed"),
    [
        (4, 6, 2, 0),
        (4, 8, 2, 1),
        (4, 10, 2, 2),
        (4, 4, 2, 0),
        (8, 4, 2, 0),
        (4, 5, 1, 0),
        (4, 7, 1, 2),
    ],
)
def test_unserved_windows_are_counted(last: int, window: int, lanes: int, missed: int) -> None:
    assert windows_between(last, window, lanes) == missed
