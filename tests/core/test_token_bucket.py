"""Token buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.token_bucket import TokenBucket

NOW = 1_800_000_000_000


def test_full_bucket_gains_nothing() -> None:
    bucket = TokenBucket(per_s=10, most=5)
    assert bucket.tokens(NOW) == 5
    bucket.take(1, NOW)
    assert bucket.tokens(NOW + 60_000) == 5


def test_empty_bucket_names_the_wait() -> None:
    bucket = TokenBucket(per_s=10, most=5)
    bucket.take(5, NOW)
    assert bucket.tokens(NOW) == 0
    assert bucket.wait_ms(1, NOW) == 100
    assert bucket.wait_ms(5, NOW + 50) == 450
    assert bucket.wait_ms(6, NOW) is None
    assert bucket.tokens(NOW + 100) == 1


def test_clock_that_is_put_back_changes_nothing() -> None:
    bucket = TokenBucket(per_s=10, most=5)
    bucket.take(5, NOW)
    assert bucket.tokens(NOW - 10_000) == 0
    bucket.take(0, NOW - 10_000)
    assert bucket.tokens(NOW - 9_900) == 1


def test_bucket_gains_again_after_a_look_at_a_clock_that_was_put_back() -> None:
    bucket = TokenBucket(per_s=10, most=5)
    bucket.take(5, NOW)
    assert bucket.wait_ms(1, NOW - 3_600_000) == 100
    assert bucket.tokens(NOW - 3_600_000 + 100) == 1


def test_other_rate_holds_from_its_moment_on() -> None:
    bucket = TokenBucket(per_s=10, most=5)
    bucket.take(5, NOW)
    bucket.set(100, 50, NOW + 100)
    assert bucket.tokens(NOW + 100) == 1
    assert bucket.tokens(NOW + 200) == 11
    bucket.set(1, 2, NOW + 200)
    assert bucket.tokens(NOW + 200) == 2


@given(st.integers(1, 5_000), st.integers(1, 200), st.integers(0, 1_000))
def test_wait_is_the_first_millisecond_with_enough(per_s: int, most: int, taken: int) -> None:
    bucket = TokenBucket(per_s, most)
    bucket.take(taken, NOW)
    wait_ms = bucket.wait_ms(1, NOW)
    assert wait_ms is not None
    assert bucket.tokens(NOW + wait_ms) >= 1 - 1e-6
    assert wait_ms == 0 or bucket.tokens(NOW + wait_ms - 1) < 1
