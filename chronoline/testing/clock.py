"""A clock that only the test moves."""

from __future__ import annotations

from datetime import datetime, timedelta

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import time_problem
from chronoline.runtime.timestamps import show_moment, to_ms

START_MS = 1_767_225_600_000
"""The default start of a clock: the beginning of 2026, UTC."""

_MS = timedelta(milliseconds=1)


class ManualClock:
    """A `chronoline.store.Clock` for tests: it shows the same time until `advance` or `set` moves it."""

    def __init__(self, start_ms: int | datetime = START_MS) -> None:
        self._now_ms = as_ms("start_ms", start_ms)

    def now_ms(self) -> int:
        return self._now_ms

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms - self._now_ms) / 1000

    def advance(self, ms: int = 0, *, seconds: float = 0, by: timedelta = timedelta()) -> int:
        """Moves forward by the sum of the arguments, rounded up to a millisecond, and returns the time.

        Raises `InvalidInput` for a negative sum; `set` moves back.
        """
        step = timedelta(milliseconds=ms, seconds=seconds) + by
        if step < timedelta():
            raise InvalidInput(f"a clock cannot advance by {step}; use set() to go back")
        return self.set(self._now_ms + -(-step // _MS))

    def set(self, now_ms: int | datetime) -> int:
        """Moves to a time, also back, as a corrected clock does, and returns the time."""
        self._now_ms = as_ms("now_ms", now_ms)
        return self._now_ms

    def __repr__(self) -> str:
        return f"ManualClock({show_time(self._now_ms)})"


def as_ms(what: str, moment: int | datetime) -> int:
    """Milliseconds since 1970, UTC, fractions rounded up. A datetime needs a time zone."""
    if isinstance(moment, datetime):
        moment = to_ms(moment, what)
    problem = time_problem(what, moment)
    if problem:
        raise InvalidInput(problem)
    return moment


def show_time(ms: int) -> str:
    """The time as text, and in milliseconds."""
    return f"{show_moment(ms)} = {ms}"
