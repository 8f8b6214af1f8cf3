"""Windows: lanes take turns, and a task serves until the next one of its piece beats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.pipe.windows import Term, Turn, first_window, term_of

MS = 2_000
LEAD_MS = 300


def test_lane_begins_with_its_own_windows() -> None:
    assert first_window(0, 2, window_ms=MS, now_ms=8_000) == 4
    assert first_window(0, 2, window_ms=MS, now_ms=9_999) == 4
    assert first_window(1, 2, window_ms=MS, now_ms=8_000) == 5
    assert first_window(0, 2, window_ms=MS, now_ms=10_000) == 6


@given(st.integers(0, 10**13), st.integers(1, 5), st.sampled_from([1, 999, 2_000]))
def test_every_window_has_one_lane_and_is_not_over(now_ms: int, lanes: int, window_ms: int) -> None:
    firsts = [
        first_window(each, lanes, window_ms=window_ms, now_ms=now_ms) for each in range(lanes)
    ]
    current = now_ms // window_ms
    assert sorted(firsts) == list(range(current, current + lanes))
    assert [each % lanes for each in firsts] == list(range(lanes))


def term(turn: Turn, *others: Turn, now_ms: int) -> Term:
    return term_of(turn, others, window_ms=MS, lead_ms=LEAD_MS, now_ms=now_ms)


MINE, BEFORE, NEXT = Turn(5, 7), Turn(4, 6), Turn(6, 8)


@pytest.mark.parametrize(
    ("others", "now_ms", "expected"),
    [
        pytest.param([BEFORE], 9_000, (10_000, 12_000), id="waits for its window"),
        pytest.param([], 9_000, (0, 12_000), id="nobody serves before it: at once"),
        pytest.param([NEXT], 10_500, (0, 12_000), id="relieved at the end of its window"),
        pytest.param([BEFORE, NEXT], 9_000, (10_000, 12_000), id="between two"),
        pytest.param([], 11_699, (0, 12_000), id="the end is not near"),
        pytest.param([], 11_700, (0, 14_000), id="no successor: goes on in time"),
        pytest.param([], 25_000, (0, 26_000), id="goes on for many windows"),
        pytest.param([NEXT], 11_900, (0, 12_000), id="the successor came just in time"),
        pytest.param([NEXT], 12_400, (0, 12_400), id="a late successor takes over at once"),
        pytest.param([Turn(8, 9)], 12_400, (0, 16_000), id="its successor waits for its window"),
        pytest.param([NEXT, Turn(7, 9)], 11_000, (0, 12_000), id="the first of two successors"),
        pytest.param([Turn(5, 9)], 10_500, (0, 10_500), id="a later attempt takes over"),
        pytest.param([Turn(5, 6)], 10_500, (10_000, 12_000), id="an earlier attempt is left"),
    ],
)
def test_task_serves_until_its_successor(
    others: list[Turn], now_ms: int, expected: tuple[int, int]
) -> None:
    assert term(MINE, *others, now_ms=now_ms) == expected


@given(
    st.sets(st.builds(Turn, st.integers(3, 9), st.integers(0, 3)), min_size=1),
    st.integers(8_000, 20_000),
)
def test_one_of_the_beating_tasks_serves_now(turns: set[Turn], now_ms: int) -> None:
    terms = [term(each, *(turns - {each}), now_ms=now_ms) for each in turns]
    assert sum(start_ms <= now_ms < end_ms for start_ms, end_ms in terms) == 1
