"""The limits of a topic's deliveries, in simulated time."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronoline.core.throttle import DeliveryLimits, LimitType, Throttle

NOW = 1_800_000_000_000


def most_in_a_second(moments: list[int]) -> int:
    return max(bisect_left(moments, each + 1_000) - at for at, each in enumerate(moments))


def drain(throttle: Throttle, messages: int, *, now_ms: int = NOW) -> list[int]:
    """Serves a backlog as a loader does, in simulated time; returns the moments at which messages left."""
    moments: list[int] = []
    held = 0
    while len(moments) < messages:
        room = throttle.room(now_ms, held=held, away=0)
        held += min(room, messages - len(moments) - held)
        leaving = throttle.may_leave(now_ms)
        assert leaving is not None
        count = min(leaving, held)
        moments += [now_ms] * count
        held -= count
        throttle.left(count, now_ms)
        if len(moments) < messages:
            opens_at = throttle.opens_at(now_ms, held=held, away=0)
            wakes = [throttle.leaves_at(now_ms)] if held else []
            wakes += [] if opens_at is None else [opens_at]
            assert wakes, "nothing wakes the loader any more"
            assert min(wakes) > now_ms
            now_ms = min(wakes)
    return moments


@pytest.mark.parametrize("per_s", [1, 2, 7, 49, 50, 99, 100, 149, 1_000, 20_000])
def test_no_second_has_more_than_the_rate(per_s: int) -> None:
    moments = drain(Throttle(DeliveryLimits(per_s), NOW), 3 * per_s + 1)
    assert most_in_a_second(moments) <= per_s
    assert moments[-1] - NOW <= 3_000 * 1.03, "it uses its rate"


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3_000), st.lists(st.integers(0, 1_500), min_size=1, max_size=6))
def test_rate_holds_after_pauses_of_any_length(per_s: int, pauses_ms: list[int]) -> None:
    throttle = Throttle(DeliveryLimits(per_s), NOW)
    moments: list[int] = []
    now_ms = NOW
    for pause_ms in pauses_ms:
        moments += drain(throttle, max(1, per_s // 3), now_ms=now_ms)
        now_ms = moments[-1] + pause_ms
    assert most_in_a_second(moments) <= per_s


@given(st.integers(1, 3_000), st.lists(st.integers(1, 64), min_size=2, max_size=5))
def test_parts_of_brokers_keep_the_rate_together(per_s: int, buckets: list[int]) -> None:
    limits = DeliveryLimits(per_s, 100)
    parts = [limits.part(each / sum(buckets)) for each in buckets]
    assert sum(each.most_per_s or 0 for each in parts) == pytest.approx(per_s)
    moments = sorted(each for part in parts for each in drain(Throttle(part, NOW), 20))
    assert most_in_a_second(moments) <= per_s + len(parts) - 1
    assert all((each.most_in_flight or 0) >= 1 for each in parts)


def test_no_more_is_held_than_may_leave_soon() -> None:
    throttle = Throttle(DeliveryLimits(1_000), NOW)
    room = throttle.room(NOW, held=0, away=0)
    assert 100 <= room <= 120
    assert throttle.room(NOW, held=room, away=0) == 0
    assert throttle.opens_at(NOW, held=room, away=0) is None, "a message has to leave before"
    throttle.left(20, NOW)
    opens_at = throttle.opens_at(NOW, held=60, away=0)
    assert opens_at is not None
    assert throttle.room(opens_at, held=60, away=0) > 0
    assert throttle.room(opens_at - 2, held=60, away=0) == 0


def test_messages_in_flight_close_it() -> None:
    throttle = Throttle(DeliveryLimits(most_in_flight=10), NOW)
    assert throttle.may_leave(NOW) is None
    assert throttle.room(NOW, held=2, away=3) == 5
    assert throttle.room(NOW, held=2, away=8) == 0
    assert throttle.room(NOW, held=2, away=80) == 0
    assert throttle.opens_at(NOW, held=2, away=8) is None, "only the end of a lease opens it"
    assert throttle.closed_by(held=2, away=8) is LimitType.IN_FLIGHT


def test_smaller_limits_hold_at_once() -> None:
    throttle = Throttle(DeliveryLimits(10_000), NOW)
    assert (throttle.may_leave(NOW) or 0) > 100
    throttle.set(DeliveryLimits(10, 5), NOW)
    assert throttle.may_leave(NOW) == 1
    assert throttle.room(NOW, held=0, away=5) == 0
    throttle.set(DeliveryLimits(most_in_flight=5), NOW)
    assert throttle.may_leave(NOW) is None
