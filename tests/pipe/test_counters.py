"""The counters of a pipe, and their serialization."""

import pytest

from chronoline.core.lateness import LATENESS_BOUNDS_MS
from chronoline.pipe.counters import Counters, WindowCount


def test_first_deliveries_have_a_lateness() -> None:
    counters = Counters()
    for late_ms in (0, -3, 9):  # a timing advance makes it negative
        counters.add_fired(late_ms, redelivered=False)
    counters.add_fired(5_000, redelivered=True)
    assert (counters.fired, counters.redelivered) == (4, 1)
    assert counters.lateness.counts[0] == 2
    assert counters.lateness.percentile_ms(1.0) == 9
    assert counters.lateness.sum_ms == 9


@pytest.mark.parametrize(
    ("noted", "served", "skipped"),
    [
        pytest.param([(0, 4, 8), (1, 4, 8)], 4, 0, id="both pieces"),
        pytest.param([(0, 4, 8), (1, 4, 6)], 2, 2, id="one piece stopped"),
        pytest.param([(0, 4, 6), (1, 4, 8), (0, 7, 8)], 3, 1, id="a gap in one piece"),
        pytest.param([(0, 4, 5), (0, 5, 8), (1, 4, 8), (1, 4, 6)], 4, 0, id="noted twice"),
        pytest.param([(0, 4, 8), (1, 5, 8)], 3, 1, id="one piece came later"),
        pytest.param([(0, 4, 4)], 0, 0, id="nothing"),
        pytest.param([(0, 4, 20), (1, 4, 20)], 4, 0, id="those that may be noted yet are left"),
    ],
)
def test_window_counts_once_for_all_pieces(
    noted: list[tuple[int, int, int]], served: int, skipped: int
) -> None:
    counters, windows = Counters(), WindowCount(2)
    for piece, first, stop in noted:
        windows.note(piece, range(first, stop))
    for before in (3, 6, 8, 8):
        windows.count(before, counters)
    assert (counters.served, counters.skipped) == (served, skipped)


def test_counters_round_trip() -> None:
    counters = Counters(fired=3, lag=4, clock_offset_ms=-7, restarts=1)
    counters.lateness.add(range(len(LATENESS_BOUNDS_MS) + 1), 7.5, 5.5)
    assert Counters.from_json(counters.to_json()) == counters


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "5", "[]", "null", "{}", '{"lateness": 5}', '{"lateness": {"counts": 5}}'],
)
def test_unreadable_counters_are_zero(text: str) -> None:
    assert Counters.from_json(text) == Counters()


def test_counters_of_other_versions_are_readable() -> None:
    found = Counters.from_json('{"fired": 3, "dreams": 7, "lateness": {"counts": [1, 2]}}')
    assert found == Counters(fired=3)


def test_processes_are_added_and_the_worst_clock_is_kept() -> None:
    total = Counters(fired=1, lag=2, clock_offset_ms=5)
    total.add(Counters(fired=10, lag=20, clock_offset_ms=-7))
    assert (total.fired, total.lag, total.clock_offset_ms) == (11, 22, -7)


def test_counts_of_tasks_are_taken_over_without_the_others() -> None:
    tasks, pipe = Counters(fired=5, served=2, lag=7), Counters(fired=1, lag=3, relayed=4)
    tasks.add_fired(9, redelivered=False)
    pipe.set_fired(tasks)
    tasks.add_fired(9, redelivered=False)  # the histogram is a copy
    assert (pipe.fired, pipe.served, pipe.lag, pipe.relayed) == (6, 2, 3, 4)
    assert pipe.lateness.total == 1
