"""The counters of a pipe, and their serialization."""

import pytest

from chronoline.core.lateness import LATENESS_BOUNDS_MS
from chronoline.pipe.counters import Counters, WindowCount


def observed(**more: int | None) -> dict[str, int | None]:
    late: dict[str, int | None] = {f"late_{each}": 0 for each in range(len(LATENESS_BOUNDS_MS) + 1)}
    return late | {"fired": 0, "redelivered": 0, "late_sum_ms": None} | more


def test_messages_add_up() -> None:
    counters = Counters()
    counters.add_messages(observed(fired=3, late_0=2, late_4=1, late_sum_ms=9))
    counters.add_messages(observed(fired=1, late_0=1, redelivered=None))
    assert (counters.fired, counters.redelivered) == (4, 0)
    assert counters.lateness.counts[0] == 3
    assert counters.lateness.percentile_ms(1.0) == 10
    assert counters.lateness.sum_ms == 9


LANES = 2


def batch(window: int, served: int, skipped: int = 0, first: int | None = None) -> dict[str, int]:
    """Returns the observation of a micro-batch, with the tasks that served and those that skipped."""
    first_window = window if first is None else first
    return {
        "first_window": first_window,
        "window": window,
        "served": served,
        "skipped": skipped,
    }


@pytest.mark.parametrize(
    ("batches", "served", "skipped"),
    [
        pytest.param([batch(4, 1), batch(6, 1)], 2, 0, id="one task each"),
        pytest.param([batch(4, 3), batch(6, 3)], 2, 0, id="three tasks each"),
        pytest.param([batch(4, 0, 3), batch(6, 3)], 1, 1, id="all tasks skipped"),
        pytest.param([batch(4, 2, 1), batch(6, 3)], 1, 1, id="one of three skipped"),
        pytest.param([batch(4, 3), batch(10, 3)], 2, 2, id="nobody came to two"),
        pytest.param([batch(4, 0, 1)] * 4 + [batch(4, 1), batch(6, 1)], 1, 1, id="four times"),
        pytest.param([batch(4, 3), batch(8, 3, first=6)], 1, 2, id="tasks in two windows"),
        pytest.param([batch(8, 3, first=6), batch(10, 3)], 1, 2, id="the first in two windows"),
        pytest.param([batch(4, 3), batch(6, 0), batch(6, 0)], 1, 0, id="stopped"),
    ],
)
def test_shared_window_counts_once(
    batches: list[dict[str, int]], served: int, skipped: int
) -> None:
    counters, windows = Counters(), WindowCount(LANES)
    for each in batches:
        windows.add(each, counters)
    assert (counters.served, counters.skipped) == (served, skipped)


def test_counters_round_trip() -> None:
    counters = Counters(fired=3, lag=4, clock_offset_ms=-7, restarts=1)
    counters.lateness.add(range(len(LATENESS_BOUNDS_MS) + 1), 7.5)
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
