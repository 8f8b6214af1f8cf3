"""Lateness as a histogram, and as percentiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.lateness import LATENESS_BOUNDS_MS, Lateness, LatenessHistogram, show_bound


@given(st.lists(st.floats(-1, 100_000), min_size=1), st.sampled_from([0.0, 0.5, 0.99, 0.999, 1.0]))
def test_percentile_is_an_upper_bound_of_its_share(late_ms: list[float], part: float) -> None:
    lateness = LatenessHistogram()
    for each in late_ms:
        lateness.observe(each)
    assert lateness.total == len(late_ms)
    bound = lateness.percentile_ms(part)
    assert bound is not None
    kept = sum(each <= bound for each in late_ms)
    assert kept >= part * len(late_ms)
    lower = [each for each in (*LATENESS_BOUNDS_MS, math.inf) if each < bound]
    if lower and part:
        assert sum(each <= lower[-1] for each in late_ms) < part * len(late_ms)


def test_without_messages_nothing_is_known() -> None:
    assert LatenessHistogram().percentile_ms(0.5) is None


def test_histograms_are_added_and_shown_as_prometheus_wants_them() -> None:
    lateness, more = LatenessHistogram(), LatenessHistogram()
    lateness.observe(1)
    more.observe(1.5)
    more.observe(1_000_000)
    lateness.add(more.counts, more.sum_ms)
    shown = dict(lateness.cumulative())
    assert lateness.sum_ms == 1_000_002.5
    assert (shown["0.001"], shown["0.002"], shown["60.0"], shown["+Inf"]) == (1, 2, 2, 3)


def test_percentile_is_no_larger_than_the_largest() -> None:
    lateness, total = LatenessHistogram(), LatenessHistogram()
    lateness.observe(5_600)
    before = lateness.copy()
    assert lateness.percentile_ms(0.5) == 5_600
    lateness.observe(2_500)
    assert lateness.since(before).percentile_ms(0.5) == 2_500
    total.add(lateness.counts, lateness.sum_ms)  # of a process that does not send its largest
    assert total.percentile_ms(1.0) == 8_100
    total.add(lateness.counts, lateness.sum_ms, lateness.max_ms)
    lateness.observe(75_000)
    assert lateness.percentile_ms(1.0) == 75_000


@pytest.mark.parametrize(
    ("late_ms", "words"),
    [
        (None, "–"),
        (0, "≤ 1 ms"),
        (1, "≤ 1 ms"),
        (7.2, "≤ 8 ms"),
        (5_601, "≤ 5.7 s"),
        (75_000, "≤ 75 s"),
    ],
)
def test_bounds_in_words(late_ms: float | None, words: str) -> None:
    assert show_bound(late_ms) == words


def test_percentiles_are_values_that_occurred() -> None:
    late = Lateness.of(float(value) for value in range(1, 1001))
    assert late == Lateness(count=1000, p50_ms=500, p99_ms=990, p999_ms=999, max_ms=1000)


@pytest.mark.parametrize("values", [[7.5], [7.5, 1.0], [1.0, 7.5, 2.0]])
def test_few_values_have_the_greatest_as_high_percentiles(values: list[float]) -> None:
    late = Lateness.of(values)
    assert (late.p99_ms, late.p999_ms, late.max_ms) == (7.5, 7.5, 7.5)


def test_the_median_of_two_is_the_smaller() -> None:
    assert Lateness.of([2.0, 1.0]).p50_ms == 1.0


def test_no_values_are_zero() -> None:
    assert Lateness.of([]) == Lateness(count=0, p50_ms=0, p99_ms=0, p999_ms=0, max_ms=0)
