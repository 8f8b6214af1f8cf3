"""Percentiles of equal slices of a run."""

from chronoline.core.lateness import Lateness
from chronoline_bench.harness.slices import Point, late_share, slices_of

START_US = 1_700_000_000_000_000


def at(second: float, late_ms: float) -> Point:
    return START_US + round(second * 1_000_000), late_ms


def test_each_slice_has_its_own_percentiles() -> None:
    points = [at(0, 1), at(9.999999, 3), at(10, 50), at(12, 70), at(11, 60)]
    first, second = slices_of(points, START_US, 10)
    assert (first.first_s, first.late) == (0, Lateness.of([1, 3]))
    assert (second.first_s, second.late) == (10, Lateness.of([50, 60, 70]))
    assert (str(second), second.middle_s) == ("10–20 s", 15)


def test_slice_in_which_nothing_was_due_is_left_out() -> None:
    assert [each.first_s for each in slices_of([at(25, 1), at(1, 1)], START_US, 10)] == [0, 20]
    assert slices_of([], START_US, 10) == []


def test_points_before_the_start_belong_to_no_slice() -> None:
    assert slices_of([at(-1, 1)], START_US, 10) == []


def test_share_of_late_messages() -> None:
    assert late_share([10, 50, 51, 5_000], 50) == 0.5
    assert late_share([], 50) == 0
