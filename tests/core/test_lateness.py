"""Lateness as a histogram."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.lateness import LATENESS_BOUNDS_MS, LatenessHistogram


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
