"""A clock that moves only when a test sets it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.store import Clock
from chronoline.testing import ManualClock


def test_clock_stands_still() -> None:
    clock: Clock = ManualClock()
    assert clock.now_ms() == clock.now_ms()
    assert datetime.fromtimestamp(clock.now_ms() / 1000, UTC) == datetime(2026, 1, 1, tzinfo=UTC)


def test_clock_advances_by_the_given_time() -> None:
    clock = ManualClock(start_ms=1_000)
    assert clock.advance(5) == 1_005
    assert clock.advance(ms=5) == 1_010
    assert clock.advance(seconds=2.5) == 3_510
    assert clock.advance(by=timedelta(minutes=1)) == 63_510
    assert clock.advance(1, seconds=1, by=timedelta(seconds=1)) == 65_511
    assert clock.now_ms() == 65_511


def test_fractions_of_a_millisecond_are_rounded_up() -> None:
    clock = ManualClock(0)
    assert clock.advance(by=timedelta(microseconds=1)) == 1
    assert clock.advance(seconds=0.1 + 0.2) == 301
    assert clock.set(datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)) == 1


def test_clock_can_be_set_back() -> None:
    clock = ManualClock(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
    assert clock.now_ms() == ManualClock().now_ms()
    assert clock.set(5) == 5
    assert repr(clock) == "ManualClock(1970-01-01T00:00:00.005Z = 5)"


@pytest.mark.parametrize("moment", [-1, 253_402_300_800_000, 1.5, True, datetime(2026, 1, 1)])
def test_invalid_moments_are_refused(moment: int) -> None:
    clock = ManualClock(7)
    with pytest.raises(InvalidInput, match="now_ms"):
        clock.set(moment)
    with pytest.raises(InvalidInput, match="start_ms"):
        ManualClock(moment)
    assert clock.now_ms() == 7


def test_advance_refuses_negative_time() -> None:
    clock = ManualClock(7)
    with pytest.raises(InvalidInput, match=r"set\(\)"):
        clock.advance(-1)
    with pytest.raises(InvalidInput, match="year 9999"):
        clock.advance(253_402_300_799_999)
    assert clock.now_ms() == 7
