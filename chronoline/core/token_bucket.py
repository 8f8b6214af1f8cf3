"""A token bucket: a rate with a bounded burst. Time is an argument."""

from __future__ import annotations

import math


class TokenBucket:
    """Holds up to `most` tokens, and gains `per_s` a second. It begins full.

    A clock that is put back gains nothing and takes nothing away; from then on it gains as before.
    """

    def __init__(self, per_s: float, most: float) -> None:
        self._per_s = per_s
        self._most = most
        self._tokens = most
        self._at_ms: int | None = None

    def set(self, per_s: float, most: float, now_ms: int) -> None:
        """Changes rate and bound from now on. Tokens beyond the bound are lost."""
        self._tokens = min(self.tokens(now_ms), most)
        self._at_ms = now_ms
        self._per_s, self._most = per_s, most

    def tokens(self, now_ms: int) -> float:
        """The tokens that it holds; less than 0 after more were taken."""
        if self._at_ms is None:
            return self._tokens
        self._at_ms = min(self._at_ms, now_ms)
        return min(self._most, self._tokens + (now_ms - self._at_ms) * self._per_s / 1000)

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = self.tokens(now_ms) - count
        self._at_ms = now_ms

    def wait_ms(self, count: float, now_ms: int) -> int | None:
        """How long until it holds `count`; None if that is more than it can hold."""
        if count > self._most:
            return None
        missing = count - self.tokens(now_ms)
        return max(0, math.ceil(round(missing * 1000 / self._per_s, 6)))
