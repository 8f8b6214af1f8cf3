"""Statistics of the number of timers of a tag over five minutes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.timers.membership import Membership
from chronoline.timers.replica import Replica
from chronoline.timers.tag_statistics import SLICE_MS, WINDOW_MS, TagFigures, TagStatistics

_T0 = 1_000_000


def _figures(statistics: TagStatistics, now_ms: int, tag: str = "CALL") -> TagFigures:
    return dict(statistics.figures(now_ms))[tag]


def test_average_and_variance_are_weighted_by_time() -> None:
    statistics = TagStatistics()
    statistics.add("CALL", 2, _T0)
    statistics.add("CALL", 4, _T0 + 30_000)
    statistics.add("CALL", -6, _T0 + 40_000)
    # 30 s of 2, 10 s of 6, 20 s of 0.
    assert _figures(statistics, _T0 + 60_000) == TagFigures(0, 2.0, 4.0, 6, 0)


def test_peak_within_a_moment_is_high_water() -> None:
    statistics = TagStatistics()
    statistics.add("CALL", 1, _T0)
    for added in (99, -99):
        statistics.add("CALL", added, _T0 + 60_000)
    found = _figures(statistics, _T0 + 60_000 + WINDOW_MS - SLICE_MS)
    assert (found.high, found.low, found.average) == (100, 1, 1.0)
    assert _figures(statistics, _T0 + 60_000 + WINDOW_MS + SLICE_MS) == TagFigures(
        1, 1.0, 0.0, 1, 1
    )


def test_low_water_of_the_first_number_is_0() -> None:
    statistics = TagStatistics()
    statistics.add("CALL", 5, _T0)
    assert _figures(statistics, _T0) == TagFigures(5, 5.0, 0.0, 5, 0)


def test_time_before_the_first_timer_of_a_tag_counts() -> None:
    replica = Replica("a", Membership(("a",)), life="1")
    replica.started(_T0)
    tags = replica.tally.tags
    tags.add("CALL", 5, _T0 + 40_000)
    assert _figures(tags, _T0 + 50_000) == TagFigures(5, 1.0, 4.0, 5, 0)


def test_tag_is_forgotten_five_minutes_after_its_last_timer() -> None:
    statistics = TagStatistics()
    for number in range(100):
        statistics.add(f"t{number}", 1, _T0)
        statistics.add(f"t{number}", -1, _T0 + number)
    statistics.add("CALL", 1, _T0 + 50)
    assert statistics.counts() == {"CALL": 1}
    assert len(dict(statistics.figures(_T0 + 100))) == 101
    statistics.add("CALL", 1, _T0 + WINDOW_MS + 49)
    # That it does not grow is the rule.
    assert len(statistics._tags) == 51
    assert [tag for tag, _ in statistics.figures(_T0 + WINDOW_MS + 1_000)] == ["CALL"]


_CHANGES = st.lists(
    st.tuples(st.sampled_from([0, 1, 900, 9_999, 10_000, 45_000, 400_000]), st.integers(-3, 5)),
    min_size=1,
    max_size=40,
)


@given(changes=_CHANGES, after_ms=st.sampled_from([0, 1, 5_000, 10_000, 290_000, 310_000]))
def test_figures_are_those_of_the_number_at_each_moment(
    changes: list[tuple[int, int]], after_ms: int
) -> None:
    statistics = TagStatistics()
    statistics.add("other", 1, _T0)  # the time that is looked at begins here
    now_ms, count, past = _T0, 0, [(_T0, 0)]
    for pause_ms, change in changes:
        now_ms += pause_ms
        added = max(change, -count)
        if added:
            count += added
            statistics.add("CALL", added, now_ms)
            past.append((now_ms, count))
    now_ms += after_ms
    known = dict(statistics.figures(now_ms))
    if "CALL" not in known:
        return
    found = known["CALL"]
    # The slice in which the five minutes begin counts as a whole, if the number changed in it.
    begins = {max(_T0, now_ms - WINDOW_MS)}
    begins |= {max(_T0, each // SLICE_MS * SLICE_MS) for each in begins}
    wanted = [_expected(past, from_ms, now_ms) for from_ms in begins]
    assert found.count == count
    assert any((found.average, found.variance) == pytest.approx(each) for each in wanted)
    assert found.low <= found.average <= found.high


def _expected(past: list[tuple[int, int]], from_ms: int, now_ms: int) -> tuple[float, float]:
    lengths: list[tuple[int, int]] = []
    for (at_ms, count), (until_ms, _) in zip(past, [*past[1:], (now_ms, 0)], strict=True):
        lengths.append((count, max(0, until_ms - max(at_ms, from_ms))))
    total = sum(length for _, length in lengths)
    if not total:
        return float(past[-1][1]), 0.0
    average = sum(count * length for count, length in lengths) / total
    return average, sum((count - average) ** 2 * length for count, length in lengths) / total
