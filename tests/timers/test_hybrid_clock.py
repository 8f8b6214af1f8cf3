"""The clock of versions: later changes get higher numbers, and no record moves it too far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.timers.hybrid_clock import COUNTER_BITS, HybridClock
from chronoline.timers.timer import MOST_NUMBER, Version

_WALL_MS = 1_800_000_000_000
_BOUND_MS = 60_000


def _clock() -> HybridClock:
    return HybridClock("a/life", bound_ms=_BOUND_MS)


def test_later_change_has_the_higher_number_without_contact() -> None:
    one, other = _clock(), HybridClock("b/life", bound_ms=_BOUND_MS)
    earlier = [one.next(_WALL_MS) for _ in range(500)]
    assert other.next(_WALL_MS + 1) > max(earlier)


def test_numbers_of_a_counter_are_lower() -> None:
    assert _clock().next(_WALL_MS).number > 1 << 40


@given(walls_ms=st.lists(st.integers(_WALL_MS - 2 * _BOUND_MS, _WALL_MS + 2 * _BOUND_MS)))
def test_no_version_is_given_twice(walls_ms: list[int]) -> None:
    clock = _clock()
    given_versions = [clock.next(wall_ms) for wall_ms in walls_ms]
    assert len(set(given_versions)) == len(given_versions)


def test_version_is_above_what_was_seen_within_the_bound() -> None:
    clock = _clock()
    seen = Version(_WALL_MS + _BOUND_MS << COUNTER_BITS, "b")
    assert clock.problem(seen.number, _WALL_MS) is None
    clock.saw(seen)
    assert clock.next(_WALL_MS).number == seen.number + 1


def test_version_beyond_the_bound_is_refused_and_not_followed() -> None:
    clock = _clock()
    far = (_WALL_MS + _BOUND_MS + 1) << COUNTER_BITS
    problem = clock.problem(far, _WALL_MS)
    assert problem is not None
    assert "60 s ahead" in problem
    clock.saw(Version(far, "b"))
    assert clock.next(_WALL_MS).number == _WALL_MS << COUNTER_BITS
    assert "days ahead" in (clock.problem(1 << 62, _WALL_MS) or "")


def test_clock_rollback_beyond_the_bound_changes_the_giver() -> None:
    clock = _clock()
    first = clock.next(_WALL_MS)
    clock.next(_WALL_MS + 2 * _BOUND_MS)
    again = clock.next(_WALL_MS)
    assert again.number == first.number
    assert again.giver != first.giver


def test_clock_set_back_within_the_bound_goes_on_counting() -> None:
    clock = _clock()
    first = clock.next(_WALL_MS)
    assert clock.next(_WALL_MS - _BOUND_MS) == Version(first.number + 1, first.giver)


def test_version_far_ahead_does_not_move_the_clock() -> None:
    clock = _clock()
    far = 1 << 53
    assert clock.next(_WALL_MS, above=far).number == far + 1
    assert clock.next(_WALL_MS).number == _WALL_MS << COUNTER_BITS


@given(wall_ms=st.integers(-(1 << 62), 1 << 62))
def test_every_wall_clock_gives_a_number_within_bounds(wall_ms: int) -> None:
    assert 0 < _clock().next(wall_ms).number < 1 << 53


def test_there_is_nothing_above_the_highest_number() -> None:
    with pytest.raises(InvalidInput, match="highest version"):
        _clock().next(_WALL_MS, above=MOST_NUMBER)
