"""Offsets of other clocks: measured, and warned about past a bound, not more often than once a minute."""

import time

import pytest

from chronoline.pipe.clock_offset import ClockOffset


def ahead(offset_ms: int) -> int:
    return time.time_ns() // 1_000_000 + offset_ms


def test_right_clock_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    offset = ClockOffset("the store", lambda: ahead(0), bound_ms=60_000)
    offset.measure()
    assert not offset.bad
    assert caplog.messages == []


@pytest.mark.parametrize("offset_ms", [-3_600_000, 3_600_000])
def test_wrong_clock_gives_one_warning(caplog: pytest.LogCaptureFixture, offset_ms: int) -> None:
    offset = ClockOffset("Kafka", lambda: ahead(offset_ms), bound_ms=60_000)
    found = [offset.measure() for _ in range(3)]
    assert offset.bad
    assert all((each > 0) == (offset_ms > 0) for each in found)
    assert caplog.messages == [offset.words(found[0])]
    assert "the clock of Kafka is" in caplog.text


def test_store_without_a_clock_is_not_off() -> None:
    assert ClockOffset("a file", lambda: None, bound_ms=1).measure() == 0


def test_a_slow_answer_is_no_offset(caplog: pytest.LogCaptureFixture) -> None:
    def slow() -> int:
        answer = ahead(0)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        return answer

    offset = ClockOffset("Kafka", slow, bound_ms=10)
    assert offset.measure() < 0
    assert not offset.bad
    assert caplog.messages == []
