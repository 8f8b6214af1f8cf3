"""The store's health, with made-up histories of calls."""

from __future__ import annotations

import pytest

from chronoline.broker.store_health import StoreHealth
from chronoline.core.errors import StoreBusy, StoreFull, StoreUnavailable

_GONE = StoreUnavailable("the server is gone")


def is_admitted(health: StoreHealth, now_s: float) -> bool:
    try:
        health.admit(now_s)
    except StoreUnavailable as error:
        return not error.retry_after_ms  # a refusal names the time to try again
    return True


def failing_store(now_s: float) -> StoreHealth:
    """Every second call failed."""
    health = StoreHealth()
    for _ in range(10):
        health.answered(now_s)
        health.failed(_GONE, now_s)
    return health


# Refusals


def test_refusal_is_reported_until_a_change_succeeds() -> None:
    health = StoreHealth()
    assert health.refusal(100.0) == ""
    for _ in range(3):
        health.refused(StoreFull("no room"), 100.0)
    assert (health.refusal(100.0), health.problem) == ("no room", "")
    health.changed()
    assert health.refusal(100.0) == ""


def test_refusal_expires_without_new_attempts() -> None:
    """Without expiry, a node that gets no requests would never be ready again."""
    health = StoreHealth()
    health.refused(StoreBusy("another process writes"), 100.0)
    assert health.refusal(104.9) == "another process writes"
    assert health.refusal(105.0) == ""


# Away


def test_store_that_fails_in_a_row_is_probed() -> None:
    health = StoreHealth()
    for _ in range(3):
        assert is_admitted(health, 100.0)
        health.failed(_GONE, 100.0)
    assert health.problem == "the server is gone"
    assert [is_admitted(health, at_s) for at_s in (100.1, 100.2, 100.3, 100.41)] == [
        *(False, True),
        *(False, True),
    ]


def test_one_answer_ends_a_short_absence() -> None:
    health = StoreHealth()
    for _ in range(3):
        health.failed(_GONE, 100.0)
    health.answered(100.3)
    assert health.problem == ""
    assert all(is_admitted(health, 100.3) for _ in range(100))


# Failing


def test_half_of_calls_failing_refuses_all_but_samples() -> None:
    health = failing_store(100.0)
    assert health.problem == "10 of the last 20 calls of the store failed: the server is gone"
    admitted = [is_admitted(health, 100.01) for _ in range(1_000)]
    assert admitted.count(True) == 100


def test_samples_are_taken_from_rare_calls_too() -> None:
    health = failing_store(100.0)
    assert [is_admitted(health, 100.0 + step / 10) for step in range(1, 6)] == [True] * 5


def test_store_that_fails_seldom_is_not_sampled() -> None:
    health = StoreHealth()
    for step in range(1_000):
        if step % 3:
            health.answered(100.0)
        else:
            health.failed(_GONE, 100.0)
    assert health.problem == ""


@pytest.mark.parametrize("by", ["a row of answers", "an answer after a quiet time"])
def test_failing_store_recovers_by_its_samples(by: str) -> None:
    health = failing_store(100.0)
    for _ in range(9 if by == "a row of answers" else 1):
        health.answered(101.0)
    assert health.problem != ""
    health.answered(101.0 if by == "a row of answers" else 102.0)
    assert health.problem == ""
    health.failed(_GONE, 103.0)
    assert health.problem == ""  # the earlier failures do not count again


def test_failure_among_the_samples_prolongs_the_state() -> None:
    health = failing_store(100.0)
    for _ in range(9):
        health.answered(101.0)
    health.failed(_GONE, 101.0)
    for _ in range(9):
        health.answered(101.5)
    assert health.problem != ""
