"""How long to wait before a call that failed is made again."""

from __future__ import annotations


def wait_ms(failed: int, jitter: float, *, first_ms: int, longest_ms: int) -> int:
    """After so many failures: twice as long each time, less up to half of it by `jitter`, from 0 to 1."""
    grown_ms = min(longest_ms, first_ms << min(max(failed - 1, 0), 30))
    return int(grown_ms * (1 - jitter / 2))
