"""A clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import time_problem
from chronoline.runtime.clock import to_ms

START_MS = 1_767_225_600_000
"""Where a clock starts that was not told otherwise: the beginning of 2026, UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class ManualClock:
    """A `chronoline.Clock` for tests: it shows the same time until `advance` or `set` moves it."""

    def __init__(self, start_ms: int | datetime = START_MS) -> None:
        self._now_ms = as_ms("start_ms", start_ms)

    def now_ms(self) -> int:
        return self._now_ms

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms - self._now_ms) / 1000

    def advance(self, ms: int = 0, *, seconds: float = 0, by: timedelta = timedelta()) -> int:
        """Moves forward by the sum of what is given, rounded up to a millisecond; answers the time.

        Raises `InvalidInput` if that is backward; `set` moves there.
        """
        step = timedelta(milliseconds=ms, seconds=seconds) + by
        if step < timedelta():
            raise InvalidInput(f"a clock cannot advance by {step}; use set() to go back")
        return self.set(self._now_ms + -(-step // _MS))

    def set(self, now_ms: int | datetime) -> int:
        """Moves to a moment, also back, as clocks do that are put right; answers the time."""
        self._now_ms = as_ms("now_ms", now_ms)
        return self._now_ms

    def __repr__(self) -> str:
        return f"ManualClock({show_time(self._now_ms)})"


def as_ms(what: str, moment: int | datetime) -> int:
    """Milliseconds since 1970, UTC, fractions rounded up. A datetime must know its zone."""
    if isinstance(moment, datetime):
        moment = to_ms(moment, what)
    problem = time_problem(what, moment)
    if problem:
        raise InvalidInput(problem)
    return moment


def show_time(ms: int) -> str:
    """The moment as people read it, and as it is stored."""
    return f"{(_EPOCH + ms * _MS).strftime('%Y-%m-%d %H:%M:%S')}.{ms % 1000:03} UTC = {ms}"
