"""What a pipe counts of itself, and how it travels."""

import pytest

from chronoline.pipe.counting import Counters
from chronoline.pipe.receipts import LATENESS_BOUNDS_MS


def observed(**more: int | None) -> dict[str, int | None]:
    late: dict[str, int | None] = {f"late_{each}": 0 for each in range(len(LATENESS_BOUNDS_MS) + 1)}
    return late | {"fired": 0, "redelivered": 0, "served": 1, "skipped": 0} | more


def test_windows_add_up() -> None:
    counters = Counters()
    counters.add_windows(observed(fired=3, late_0=2, late_4=1))
    counters.add_windows(observed(fired=1, late_0=1, skipped=None))
    assert (counters.fired, counters.served, counters.skipped) == (4, 2, 0)
    assert counters.lateness.counts[0] == 3
    assert counters.lateness.percentile_ms(1.0) == 10


def test_what_travels_arrives() -> None:
    counters = Counters(fired=3, lag=4, clock_offset_ms=-7, restarts=1)
    counters.lateness.add(range(len(LATENESS_BOUNDS_MS) + 1))
    assert Counters.from_json(counters.to_json()) == counters


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "5", "[]", "null", "{}", '{"lateness": 5}', '{"lateness": {"counts": 5}}'],
)
def test_what_cannot_be_read_counts_nothing(text: str) -> None:
    assert Counters.from_json(text) == Counters()


def test_another_version_may_say_less_or_more() -> None:
    found = Counters.from_json('{"fired": 3, "dreams": 7, "lateness": {"counts": [1, 2]}}')
    assert found == Counters(fired=3)


def test_processes_are_added_and_the_worst_clock_is_kept() -> None:
    total = Counters(fired=1, lag=2, clock_offset_ms=5)
    total.add(Counters(fired=10, lag=20, clock_offset_ms=-7))
    assert (total.fired, total.lag, total.clock_offset_ms) == (11, 22, -7)
