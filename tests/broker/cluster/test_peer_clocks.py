"""The clocks of other brokers, from made-up histories of stamps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from chronoline.broker.cluster.peer_clocks import OffsetRange, PeerClocks, PeerRoster
from chronoline.coordination.membership import ClockStamp

_STEP_MS = 5_000.0


@dataclass
class Broker:
    """A broker whose clock is ahead of the true time, and whose monotonic clock began some time ago."""

    name: str
    ahead_ms: float
    began_ms: float
    clocks: PeerClocks = field(init=False)

    def __post_init__(self) -> None:
        self.clocks = PeerClocks(self.name)

    def at(self, true_ms: float) -> tuple[int, float]:
        return int(true_ms + self.ahead_ms), true_ms - self.began_ms

    def stamp(self, true_ms: float) -> ClockStamp:
        return self.clocks.stamp(*self.at(true_ms))

    def offset_of(self, other: Broker, true_ms: float) -> OffsetRange:
        return self.clocks.offsets(*self.at(true_ms))[other.name]


def exchange(a: Broker, b: Broker, begin_ms: float, delays_ms: list[tuple[float, float]]) -> float:
    """Each writes a stamp in every step, which the other sees after a delay. Returns the end."""
    now_ms = begin_ms
    for to_b_ms, to_a_ms in delays_ms:
        now_ms += _STEP_MS
        of_a, of_b = a.stamp(now_ms), b.stamp(now_ms)
        b.clocks.received(of_a, *b.at(now_ms + to_b_ms))
        a.clocks.received(of_b, *a.at(now_ms + to_a_ms))
    return now_ms + _STEP_MS


def pair(ahead_ms: float) -> tuple[Broker, Broker]:
    return Broker("a", 0.0, 500_000.0), Broker("b", ahead_ms, 900_000.0)


@pytest.mark.parametrize("ahead_ms", [0.0, 30.0, 10_000.0, -10_000.0])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_contain_the_offset_whatever_the_delays(ahead_ms: float, seed: int) -> None:
    chance = random.Random(seed)
    delays = [(chance.expovariate(1 / 200), chance.expovariate(1 / 200)) for _ in range(30)]
    a, b = pair(ahead_ms)
    end_ms = exchange(a, b, 1_000_000.0, delays)
    for one, other, true_ms in ((a, b, ahead_ms), (b, a, -ahead_ms)):
        found = one.offset_of(other, end_ms)
        assert found.low_ms - 2 <= true_ms <= found.high_ms + 2
        fastest_ms = min(delays[-8:], key=sum)
        assert found.high_ms - found.low_ms <= sum(fastest_ms) + 2 * max(fastest_ms) + 3


def test_one_stamp_bounds_one_side() -> None:
    a, b = pair(10_000.0)
    a.clocks.received(b.stamp(1_000_000.0), *a.at(1_000_100.0))
    found = a.offset_of(b, 1_000_100.0)
    assert found == OffsetRange(9_900.0)
    assert found.least_ms == found.likely_ms == 9_900.0


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "shown_ms"),
    [(-400, 0, 0), (-400, -2, -2), (3, 500, 3), (-400, 30, 0), (-30, -10, -20), (-10, 10, 0)],
)
def test_width_of_the_bounds_is_no_offset(low_ms: float, high_ms: float, shown_ms: float) -> None:
    """A broker that has just started sees a stamp of its peer that is seconds old."""
    assert OffsetRange(low_ms, high_ms).likely_ms == shown_ms


def test_old_stamp_does_not_make_a_clock_look_slow() -> None:
    a, b = pair(0.0)
    stamp = b.stamp(1_000_000.0)
    a.clocks.received(stamp, *a.at(1_060_000.0))  # a has only begun to watch
    assert a.offset_of(b, 1_060_000.0).least_ms == 0


@pytest.mark.parametrize("jump_ms", [10_000.0, -10_000.0])
@pytest.mark.parametrize("moved", ["a", "b"])
def test_moved_clock_is_seen_after_its_next_stamps(moved: str, jump_ms: float) -> None:
    a, b = pair(0.0)
    now_ms = exchange(a, b, 1_000_000.0, [(20.0, 20.0)] * 8)
    (a if moved == "a" else b).ahead_ms += jump_ms
    now_ms = exchange(a, b, now_ms, [(20.0, 20.0)] * 3)
    expected_ms = -jump_ms if moved == "a" else jump_ms
    assert a.offset_of(b, now_ms).least_ms == pytest.approx(expected_ms, abs=100)
    assert b.offset_of(a, now_ms).least_ms == pytest.approx(-expected_ms, abs=100)


def test_own_moved_clock_shows_at_once() -> None:
    a, b = pair(0.0)
    now_ms = exchange(a, b, 1_000_000.0, [(20.0, 20.0)] * 3)
    a.ahead_ms = 10_000.0
    assert a.offset_of(b, now_ms).likely_ms == pytest.approx(-10_000, abs=30)


def test_gone_broker_has_no_offset() -> None:
    a, b = pair(0.0)
    exchange(a, b, 1_000_000.0, [(1.0, 1.0)])
    a.clocks.keep(["a"])
    assert a.clocks.offsets(*a.at(1_000_000.0)) == {}


# Brokers that vanish


def stamps(*names: str, leaving: bool = False) -> list[ClockStamp]:
    return [ClockStamp(name, 0, leaving=leaving) for name in names]


def test_vanished_broker_is_shown_for_a_minute() -> None:
    roster = PeerRoster("a")
    roster.seen(stamps("a", "b", "c"), 0.0)
    roster.seen(stamps("a", "b"), 10.0)
    assert roster.vanished(10.0) == roster.vanished(69.9) == ["c"]
    assert roster.vanished(70.0) == []


def test_broker_that_leaves_does_not_vanish() -> None:
    roster = PeerRoster("a")
    roster.seen(stamps("b"), 0.0)
    roster.seen(stamps("b", leaving=True), 1.0)
    roster.seen([], 2.0)
    assert roster.vanished(2.0) == []


def test_broker_that_returns_is_not_vanished() -> None:
    roster = PeerRoster("a")
    roster.seen(stamps("b"), 0.0)
    roster.seen([], 1.0)
    assert roster.vanished(1.0) == ["b"]
    roster.seen(stamps("b"), 2.0)
    assert roster.vanished(2.0) == []
