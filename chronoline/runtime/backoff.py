"""Back-off: growing waits between the attempts of something that fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from chronoline.core.errors import ChronolineError


@dataclass(frozen=True, slots=True)
class Backoff:
    """The rule of a back-off. Waits are in the unit of `first` and `longest`."""

    first: float
    longest: float
    factor: float = 2.0
    spread: float = 0.0
    """The part of each wait that jitter can take away: callers that failed together come back apart."""

    def wait(self, failures: int, jitter: float = 0.0) -> float:
        """The wait after this many failures in a row, at least 1. `jitter` is from 0 to 1."""
        try:
            grown = min(self.longest, self.first * self.factor ** max(failures - 1, 0))
        except OverflowError:
            grown = self.longest if self.first else 0.0
        return grown * (1 - self.spread * jitter)


class Waits:
    """The waits of one piece of work under a back-off: each longer than the one before, until `reset`."""

    def __init__(self, backoff: Backoff, jitter: Callable[[], float] = random.random) -> None:
        self._backoff = backoff
        self._jitter = jitter
        self._failures = 0

    def next(self) -> float:
        """The wait after one more failure."""
        self._failures += 1
        return self._backoff.wait(self._failures, self._jitter())

    def after(self, error: ChronolineError) -> float:
        """The same in seconds, or the time after which the error says that a repetition is worth trying."""
        wait_s = self.next()
        return error.retry_after_ms / 1000 if error.retry_after_ms else wait_s

    def reset(self) -> None:
        """The work succeeded: the next wait is the first again."""
        self._failures = 0
