"""The search for the highest rate, and the conditions of a held rate."""

import pytest

from chronoline_bench.harness.passage import Arrivals, Passage
from chronoline_bench.pipe.rates import highest_held, is_held


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        (7_400, 7_000),
        (7_500, 7_500),
        (5_000, 5_000),
        (4_700, 4_500),
        (4_400, 4_000),
        (1_000, 1_000),
        (900, 0),
        (99_000, 20_000),
    ],
)
def test_highest_rate_is_found_to_half_a_step(limit: int, found: int) -> None:
    tried: list[int] = []

    def holds(rate: int) -> bool:
        tried.append(rate)
        return rate <= limit

    assert highest_held(holds, start=5_000, step=1_000, most=20_000) == found
    assert tried[0] == 5_000
    assert max(tried) <= 20_000
    assert len(set(tried)) == len(tried)


def passage(*, late_ms: float = 1, lost: int = 0, seconds: float = 10) -> Passage:
    due_us = dict.fromkeys(range(1_000), 10_000_000)
    arrivals = Arrivals()
    arrivals.add(
        (number, due + round(late_ms * 1_000)) for number, due in list(due_us.items())[lost:]
    )
    return Passage(
        started_us=0,
        ended_us=round(seconds * 1_000_000),
        steady_us=(10_000_000, 13_000_000),
        due_us=due_us,
        arrivals=arrivals,
    )


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (passage(), True),
        (passage(late_ms=500), True),
        (passage(late_ms=501), False),
        (passage(lost=1), False),
        # The load did not reach its rate.
        (passage(seconds=12), False),
    ],
)
def test_when_a_rate_is_held(found: Passage, held: bool) -> None:
    assert is_held(found, 100) is held
