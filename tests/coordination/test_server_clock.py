"""The bounds of a server's clock, from dates to the whole second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.coordination.etcd.server_clock import OffsetBounds

UNBOUNDED = OffsetBounds(float("-inf"), float("inf"))


def ask(bounds: OffsetBounds, offset_ms: float, now_ms: float, travel_ms: float) -> OffsetBounds:
    """Narrows the bounds by a request that arrives in the middle of its round trip."""
    date_ms = (now_ms + travel_ms / 2 + offset_ms) // 1_000 * 1_000
    return bounds.narrowed(date_ms, now_ms, now_ms + travel_ms)


@given(
    offset_ms=st.integers(-10_000_000, 10_000_000),
    begin_ms=st.integers(10**12, 2 * 10**12),
    travel_ms=st.integers(0, 20),
)
def test_bounds_hold_the_offset_and_narrow(offset_ms: int, begin_ms: int, travel_ms: int) -> None:
    now_ms = float(begin_ms)
    bounds = ask(UNBOUNDED, offset_ms, now_ms, travel_ms)
    for _ in range(7):
        now_ms += travel_ms
        now_ms += bounds.wait_ms(now_ms)
        bounds = ask(bounds, offset_ms, now_ms, travel_ms)
        assert bounds.low_ms <= offset_ms <= bounds.high_ms
    assert bounds.offset.error_ms <= 1_000 / 2**7 + travel_ms


def test_moved_clock_ends_the_earlier_bounds() -> None:
    bounds = ask(UNBOUNDED, 0, 5_500.0, 2)
    moved = ask(bounds, 60_000, 6_500.0, 2)
    assert moved.low_ms <= 60_000 <= moved.high_ms
