"""The broker's time is never ahead of what the broker said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.client.broker_time import BrokerTime

_AHEAD_US = 1_700_000_000_000_000
"""The offset of the broker's clock from the monotonic clock."""


class _Monotonic:
    def __init__(self) -> None:
        self.now_us = 1_000

    def __call__(self) -> int:
        return self.now_us


@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 500_000))))
def test_broker_time_is_never_ahead(
    stamps: list[tuple[int, int]],
) -> None:
    here = _Monotonic()
    time = BrokerTime(here)
    ways = []
    for pause_us, way_us in stamps:
        here.now_us += pause_us
        time.heard(here.now_us + _AHEAD_US - way_us, 0)
        ways.append(way_us)
        behind_us = here.now_us + _AHEAD_US - time.now_us()
        assert 0 <= behind_us <= way_us


def test_new_epoch_restarts_the_broker_time() -> None:
    here = _Monotonic()
    time = BrokerTime(here)
    time.heard(10_000_000, 0)
    time.heard(2_000_000, 1)
    assert time.now_us() == 2_000_000


def test_old_stamps_are_forgotten() -> None:
    here = _Monotonic()
    time = BrokerTime(here)
    time.heard(here.now_us + _AHEAD_US, 0)
    for _ in range(20):  # the broker's clock runs slower than ours
        here.now_us += 1_000_000
        time.heard(here.now_us + _AHEAD_US - 100_000, 0)
    assert time.now_us() == here.now_us + _AHEAD_US - 100_000


def test_another_broker_counts_from_its_first_stamp() -> None:
    here = _Monotonic()
    time = BrokerTime(here)
    time.heard(here.now_us + _AHEAD_US, 0)
    time.forget()
    assert time.now_us() == here.now_us + _AHEAD_US
    time.heard(here.now_us + _AHEAD_US - 700_000, 0)
    assert time.now_us() == here.now_us + _AHEAD_US - 700_000
