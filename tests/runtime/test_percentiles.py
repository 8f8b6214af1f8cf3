import pytest

from chronoline.runtime.percentiles import Lateness


def test_percentiles_are_values_that_occurred() -> None:
    late = Lateness.of(float(value) for value in range(1, 1001))
    assert late == Lateness(count=1000, p50_ms=500, p99_ms=990, p999_ms=999, max_ms=1000)


@pytest.mark.parametrize("values", [[7.5], [7.5, 1.0], [1.0, 7.5, 2.0]])
def test_high_percentiles_of_few_values_are_the_maximum(values: list[float]) -> None:
    late = Lateness.of(values)
    assert (late.p99_ms, late.p999_ms, late.max_ms) == (7.5, 7.5, 7.5)


def test_the_median_of_two_is_the_smaller() -> None:
    assert Lateness.of([2.0, 1.0]).p50_ms == 1.0


def test_no_values_give_no_lateness() -> None:
    assert Lateness.of([]) == Lateness(count=0, p50_ms=0, p99_ms=0, p999_ms=0, max_ms=0)
