"""The number of rows of a commit, learnt from earlier commits."""

from statistics import median

import pytest

from chronoline.runtime.group_commit import FEWEST_ROWS, MOST_ROWS, Pace


def pace_of(flush_ms: float, row_ms: float, commit_ms: float = 5) -> Pace:
    """A pace that has seen some lone callers, then a long rush, on a store of these costs."""
    pace = Pace(commit_ms)
    for rows in (1, 2, 1):
        pace.learn(rows, flush_ms + rows * row_ms)
    for _ in range(100):
        pace.learn(pace.rows(), flush_ms + pace.rows() * row_ms)
    return pace


def test_a_commit_has_about_commit_ms_of_rows() -> None:
    assert pace_of(flush_ms=0.5, row_ms=0.01).rows() == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize(("row_ms", "rows"), [(1, FEWEST_ROWS), (0.0001, MOST_ROWS)])
def test_rows_of_a_commit_are_bounded(row_ms: float, rows: int) -> None:
    assert pace_of(flush_ms=0.5, row_ms=row_ms).rows() == rows


def test_a_slow_flush_is_shared_by_more_rows() -> None:
    quick, slow, slower = (pace_of(flush_ms, row_ms=0.01).rows() for flush_ms in (1, 10, 20))
    assert quick == pytest.approx(500, rel=0.05)
    assert slow == pytest.approx(1_000, rel=0.05)
    assert slower == pytest.approx(2_000, rel=0.05)


def test_lone_callers_do_not_raise_the_row_cost() -> None:
    pace = pace_of(flush_ms=1, row_ms=0.01)
    before = pace.rows()
    for _ in range(100):
        pace.learn(1, 1.01)
    assert pace.rows() == pytest.approx(before, rel=0.01)


def test_pace_follows_a_changed_flush_time() -> None:
    pace = Pace(5)
    for flush_ms, expected in ((1, 500), (50, 5_000), (20, 2_000), (1, 500), (50, 5_000)):
        rows = []
        for _ in range(200):
            rows.append(pace.rows())
            pace.learn(rows[-1], flush_ms + rows[-1] * 0.01)
        assert median(rows[-50:]) == pytest.approx(expected, rel=0.05)


def test_pace_soon_forgets_a_stuck_commit() -> None:
    pace = pace_of(flush_ms=1, row_ms=0.01)
    pace.learn(1, 60_000)
    for _ in range(100):
        pace.learn(1, 1)
        pace.learn(pace.rows(), 1 + pace.rows() * 0.01)
    assert pace.rows() == pytest.approx(500, rel=0.05)
