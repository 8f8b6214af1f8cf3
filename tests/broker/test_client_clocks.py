"""The broker's time stamps: a moved clock starts a new epoch, an interrupted reading does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.broker.client_clocks import ClientClock, Drift, Timekeeper
from chronoline.client.broker_time import BrokerTime

_HERE_US = 1_700_000_000_000_000


class _Machine:
    """A machine with a wall clock and a monotonic clock; a reading can be interrupted."""

    def __init__(self) -> None:
        self.passed_us = 0
        self.moved_us = 0
        self.interrupted_us = 0
        """The length of an interruption after the next reading."""

    def wall_us(self) -> int:
        return self._read(_HERE_US + self.passed_us + self.moved_us)

    def whole_ms(self) -> int:
        """Its clock, if that tells milliseconds."""
        return self.wall_us() // 1000 * 1000

    def monotonic_us(self) -> int:
        return self._read(self.passed_us)

    def _read(self, found_us: int) -> int:
        self.passed_us += self.interrupted_us
        self.interrupted_us = 0
        return found_us


@pytest.mark.parametrize("back_ms", [5, 50, 450, 600])
def test_client_follows_a_clock_set_back(back_ms: int) -> None:
    machine = _Machine()
    keeper = Timekeeper(machine.wall_us, machine.monotonic_us)
    client = BrokerTime(machine.monotonic_us)
    client.heard(*keeper.stamp())
    machine.passed_us += 1_000_000
    machine.moved_us -= back_ms * 1000
    client.heard(*keeper.stamp())
    assert client.now_us() == machine.wall_us()


def test_client_follows_a_clock_set_forward_and_back() -> None:
    machine = _Machine()
    keeper = Timekeeper(machine.wall_us, machine.monotonic_us)
    client = BrokerTime(machine.monotonic_us)
    client.heard(*keeper.stamp())
    for moved_us in (300_000, 0):
        machine.moved_us = moved_us
        client.heard(*keeper.stamp())
        assert client.now_us() == machine.wall_us()


def test_small_step_forward_keeps_the_epoch() -> None:
    machine = _Machine()
    keeper = Timekeeper(machine.wall_us, machine.monotonic_us)
    machine.moved_us = 300_000
    assert keeper.stamp() == (machine.wall_us(), 0)
    machine.moved_us += 501_000
    assert keeper.stamp() == (machine.wall_us(), 1)


@pytest.mark.parametrize("interrupted_us", [10_000, 400_000, 5_000_000])
def test_interrupted_reading_keeps_the_epoch(
    interrupted_us: int,
) -> None:
    machine = _Machine()
    machine.interrupted_us = interrupted_us
    keeper = Timekeeper(machine.wall_us, machine.monotonic_us)
    assert keeper.stamp()[1] == 0
    machine.interrupted_us = interrupted_us
    assert keeper.stamp()[1] == 0
    assert keeper.stamp()[1] == 0


@given(st.lists(st.integers(0, 5_000)), st.integers(0, 999))
def test_millisecond_clock_keeps_the_epoch(pauses_us: list[int], begin_us: int) -> None:
    machine = _Machine()
    machine.passed_us = begin_us
    keeper = Timekeeper(machine.whole_ms, machine.monotonic_us)
    for pause_us in pauses_us:
        machine.passed_us += pause_us
        assert keeper.stamp() == (machine.whole_ms(), 0)


class _Client:
    """A client with a clock that is off; each of its pings travels for a time of its own."""

    def __init__(self, ahead_us: int = 0, *, tells_which: bool = True) -> None:
        self.measured = ClientClock(bound_ms=1_000)
        self.ahead_us = ahead_us
        self._tells_which = tells_which
        self._now_us = _HERE_US
        self._last = (0, 0)

    def ping(self, travels_us: int, *, is_answered: bool = True) -> Drift:
        """The next ping; the round trip takes only the way there."""
        self._now_us += 10_000_000
        measured_us, round_trip_us = self._last
        told = self.measured.pinged(
            client_us=self._now_us + self.ahead_us,
            now_us=self._now_us + travels_us,
            sent_us=self._now_us,
            round_trip_us=round_trip_us,
            measured_us=measured_us if self._tells_which else 0,
        )
        if is_answered:
            self._last = (self._now_us, travels_us)
        return told


@pytest.mark.parametrize("tells_which", [True, False])
def test_delayed_pings_are_not_drift(tells_which: bool) -> None:
    client = _Client(tells_which=tells_which)
    for travels_us in (200, 8_000_000, 200, *(2_000_000 + turn for turn in range(20)), 200):
        assert not client.ping(travels_us).drifting
    assert abs(client.ping(200).drift_us) < 1_000_000


def test_round_trip_counts_for_the_ping_that_it_measures() -> None:
    client = _Client()
    client.ping(200)
    for _ in range(6):  # these are answered too late for the next ones
        assert not client.ping(5_000_000, is_answered=False).drifting


@pytest.mark.parametrize("tells_which", [True, False])
def test_clock_behind_is_drift_however_long_pings_travel(tells_which: bool) -> None:
    client = _Client(-2_000_000, tells_which=tells_which)
    assert not client.ping(200).drifting  # its round trip is not known yet
    assert client.ping(900_000).drifting
    assert client.ping(900_000).drift_us == pytest.approx(-2_000_000, abs=1_000)


def test_clock_that_is_set_right_is_not_drift_any_more() -> None:
    client = _Client(-2_000_000)
    client.ping(200)
    assert client.ping(200).drifting
    client.ahead_us = 0
    client.ping(200)
    assert not client.ping(200).drifting


def test_first_ping_shows_a_clock_ahead() -> None:
    measured = ClientClock(bound_ms=1_000)
    told = measured.pinged(client_us=_HERE_US + 3_000_000, now_us=_HERE_US)
    assert told.drifting


@pytest.mark.parametrize(
    ("one_way_ms", "advance_ms"), [(0, 10), (20, 30), (100, 110), (5_000, 250)]
)
def test_push_leaves_early_by_the_one_way_delay(one_way_ms: int, advance_ms: int) -> None:
    measured = ClientClock(bound_ms=1_000)
    measured.pinged(client_us=0, round_trip_us=2 * one_way_ms * 1_000, now_us=0)
    assert measured.advance_ms == advance_ms
