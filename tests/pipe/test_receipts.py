"""Receipts as rows, and lateness as a histogram."""

import math
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from chronoline.pipe.receipts import (
    FIRED,
    LATENESS_BOUNDS_MS,
    SERVED,
    Fired,
    LatenessHistogram,
    as_batch,
)


def test_a_window_has_a_row_for_each_message_and_one_for_itself() -> None:
    fired = [Fired("a", 1_000, 1_002_500, False), Fired("b", 2_000, 2_000_000, True)]
    rows = as_batch(fired, outcome=SERVED, window=7, node="n").to_pylist()
    assert [row["outcome"] for row in rows] == [FIRED, FIRED, SERVED]
    assert [row["id"] for row in rows] == ["a", "b", None]
    assert [row["lateness_ms"] for row in rows] == [2.5, 0.0, None]
    assert [row["redelivered"] for row in rows] == [False, True, None]
    assert {(row["window"], row["node"]) for row in rows} == {(7, "n")}
    assert rows[0]["due"].timestamp() == 1
    assert rows[0]["fired"].timestamp() == 1.0025


def test_a_window_in_which_nothing_was_due_has_one_row() -> None:
    assert len(as_batch([], outcome=SERVED, window=7, node="n")) == 1


@given(st.lists(st.floats(-1, 100_000), min_size=1), st.sampled_from([0.0, 0.5, 0.99, 0.999, 1.0]))
def test_a_percentile_is_a_bound_that_so_many_keep(late_ms: list[float], part: float) -> None:
    counts = [0] * (len(LATENESS_BOUNDS_MS) + 1)
    for each in late_ms:
        counts[bisect_left(LATENESS_BOUNDS_MS, each)] += 1
    lateness = LatenessHistogram()
    lateness.add(counts)
    assert lateness.total == len(late_ms)
    bound = lateness.percentile_ms(part)
    assert bound is not None
    kept = sum(each <= bound for each in late_ms)
    assert kept >= part * len(late_ms)
    lower = [each for each in (*LATENESS_BOUNDS_MS, math.inf) if each < bound]
    if lower and part:
        assert sum(each <= lower[-1] for each in late_ms) < part * len(late_ms)


def test_without_receipts_nothing_is_known() -> None:
    assert LatenessHistogram().percentile_ms(0.5) is None
