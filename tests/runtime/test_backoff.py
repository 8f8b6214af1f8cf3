"""Waits grow by the factor up to the longest; jitter shortens them; a success starts over."""

import pytest

from chronoline.core.errors import StoreBusy
from chronoline.runtime.backoff import Backoff, Waits


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 100), (1, 100), (2, 200), (3, 400), (4, 500), (5_000, 500)]
)
def test_wait_doubles_up_to_the_longest(failures: int, wait: int) -> None:
    assert Backoff(100, 500).wait(failures) == wait


def test_wait_grows_by_its_factor() -> None:
    assert [Backoff(1, 100, factor=3).wait(each) for each in (1, 2, 3)] == [1, 3, 9]


@pytest.mark.parametrize(
    ("spread", "jitter", "wait"), [(0.0, 1.0, 8), (0.5, 0.0, 8), (0.5, 1.0, 4), (1.0, 0.25, 6)]
)
def test_jitter_takes_up_to_the_spread_away(spread: float, jitter: float, wait: float) -> None:
    assert Backoff(8, 8, spread=spread).wait(1, jitter) == wait


def test_no_first_wait_stays_no_wait() -> None:
    assert Backoff(0, 0).wait(7) == 0
    assert Backoff(0, 60).wait(10_000) == 0


def test_waits_grow_until_reset() -> None:
    waits = Waits(Backoff(1, 4, spread=0.5), jitter=lambda: 1.0)
    assert [waits.next() for _ in range(4)] == [0.5, 1, 2, 2]
    waits.reset()
    assert waits.next() == 0.5


def test_time_of_an_error_counts_instead_of_the_wait() -> None:
    waits, busy, unknown = Waits(Backoff(1, 4)), StoreBusy(), StoreBusy()
    busy.retry_after_ms = 250
    assert [waits.after(error) for error in (unknown, busy, unknown)] == [1, 0.25, 4]
