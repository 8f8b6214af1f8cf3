"""Validation of the moments, delays and counts that users pass."""

from __future__ import annotations

from datetime import datetime, timedelta

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS, MIN_LEASE_MS, time_problem
from chronoline.core.message import After, LeaseTime
from chronoline.runtime.timestamps import to_ms

Delay = float | timedelta
"""Seconds, or a timedelta."""


def when(due: datetime | None, delay: Delay | None, what: str = "due") -> LeaseTime:
    """A moment, or a delay from the broker's clock; neither means at once. Raises `InvalidInput`."""
    if due is not None and delay is not None:
        raise InvalidInput(f"give {what} or delay, not both")
    if due is not None:
        return moment_ms(due, what)
    return After(0 if delay is None else duration_ms(delay, "delay"))


def moment_ms(moment: datetime, what: str) -> int:
    """A moment in milliseconds. Raises `InvalidInput` if it has no zone, or is before 1970."""
    at_ms = to_ms(moment, what)
    if time_problem(what, at_ms):
        raise InvalidInput(f"{what} {moment} is not between 1970 and the year 9999")
    return at_ms


def duration_ms(duration: Delay, what: str) -> int:
    """The duration in whole milliseconds, fractions rounded up. Raises `InvalidInput`."""
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise InvalidInput(f"{what} must be seconds or a timedelta, not {type(duration).__name__}")
    try:
        seconds = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    except (OverflowError, ValueError):
        raise InvalidInput(f"{what} of {duration} seconds is out of range") from None
    whole_ms = -(-seconds // timedelta(milliseconds=1))
    if not 0 <= whole_ms <= MAX_TIME_MS:
        raise InvalidInput(f"{what} must not be negative, nor longer than 8,000 years")
    return whole_ms


def lease_length_ms(lease: Delay) -> int:
    """The duration of a lease: at least 10 ms. Raises `InvalidInput`."""
    lease_ms = duration_ms(lease, "lease")
    if lease_ms < MIN_LEASE_MS:
        raise InvalidInput(f"a lease lasts at least {MIN_LEASE_MS} ms, not {lease_ms}")
    return lease_ms


def check_count(what: str, value: object) -> None:
    """Raises `InvalidInput` if it is no number, or less than 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{what} must be a number, at least 1, not {value!r}")
