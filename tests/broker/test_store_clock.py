"""A broker that takes the store's clock for its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chronoline.broker.trusted_clock import StoreClock, TrustedClock
from chronoline.stores.memory import MemoryStore

_STORE_MS = 1_900_000_000_000


class _Ticks:
    """A monotonic clock that a test moves."""

    us = 5_000_000

    def __call__(self) -> int:
        return self.us


class _TimedStore(MemoryStore):
    """A store with a clock, whose answers take some time."""

    def __init__(self, ticks: _Ticks) -> None:
        super().__init__()
        self._ticks = ticks
        self.ahead_ms = _STORE_MS
        self.way_us = 0

    def clock_ms(self) -> int | None:
        self._ticks.us += self.way_us
        now_ms = self._ticks.us // 1000 + self.ahead_ms
        self._ticks.us += self.way_us
        return now_ms


@pytest.fixture
def parts() -> tuple[_Ticks, StoreClock, Callable[[], TrustedClock], _TimedStore]:
    ticks = _Ticks()
    clock = StoreClock(ticks)
    return ticks, clock, lambda: TrustedClock(clock, monotonic_us=ticks), _TimedStore(ticks)


Parts = tuple[_Ticks, StoreClock, Callable[[], TrustedClock], _TimedStore]


def test_clock_of_the_store_is_taken_and_carried_on(parts: Parts) -> None:
    ticks, clock, make, store = parts
    trusted = make()
    trusted.compare(store)
    ticks.us += 1_234_000
    assert clock.now_ms() == trusted.now_ms() == _STORE_MS + ticks.us // 1000
    assert clock.seconds_until(clock.now_ms() + 500) == 0.5
    assert (trusted.problem, trusted.ahead_ms) == ("", 0)


def test_imprecise_answer_moves_nothing(parts: Parts) -> None:
    _, clock, make, store = parts
    trusted = make()
    trusted.compare(store)
    before_ms = clock.now_ms()
    store.way_us, store.ahead_ms = 20_000, _STORE_MS + 15
    trusted.compare(store)
    assert clock.now_ms() - before_ms == 40


@pytest.mark.parametrize("jump_ms", [10_000, -10_000])
def test_moved_clock_of_the_store_is_followed(parts: Parts, jump_ms: int) -> None:
    _, clock, make, store = parts
    trusted = make()
    trusted.compare(store)
    store.ahead_ms += jump_ms
    before_ms = clock.now_ms()
    trusted.compare(store)
    assert clock.now_ms() - before_ms == jump_ms
    assert trusted.problem == ""
