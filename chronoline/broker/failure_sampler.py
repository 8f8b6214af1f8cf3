"""Samples instead of all calls, while most calls fail.

A sampler sees the outcomes of one kind of call. While most of the last ones failed, it lets only samples
through: one in a time, and one in a number of calls. The rest is refused early, at no cost for the part that
fails. The samples are the measure by which it recovers: some successes in a row, or a success after a time
without a failure, where few calls are made.

It decides alone: time is an argument, and nothing is logged here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRule:
    """When a sampler enters and leaves its state, and what it lets through meanwhile."""

    judged: int = 20
    """The number of last outcomes by which it judges."""
    failures: int = 10
    """The number of failures among them that is most."""
    every_s: float = 0.05
    """One call in this time is let through."""
    one_in: int = 0
    """One call in this number is let through, too; 0: none."""
    successes: int = 10
    """The number of successes in a row after which it recovers."""
    quiet_s: float = 2.0
    """It recovers by one success, if nothing has failed for this time."""


THROTTLE = SampleRule(judged=20, failures=15, every_s=0.1, successes=5, quiet_s=5.0)
"""The rule for producers: while most of their requests are invalid, one in 100 ms is carried out."""
THROTTLED = (
    "most of the last requests of this producer failed, so it is throttled; nothing was changed. "
    "Try again later"
)


class FailureSampler:
    """Lets all calls through at first."""

    def __init__(self, rule: SampleRule) -> None:
        self._rule = rule
        self._recent: deque[bool] = deque(maxlen=rule.judged)  # whether each failed
        self._failures = 0  # among the recent ones
        self._in_a_row = 0  # successes
        self._failed_s = 0.0
        self._sample_at_s = 0.0
        self._held_back = 0
        self.is_failing = False
        """Only samples are let through."""

    @property
    def shown(self) -> str:
        """The outcomes by which it judged."""
        return f"{self._failures} of the last {len(self._recent)}"

    def admits(self, now_s: float) -> bool:
        """Whether a call may be made. Counts it, if so."""
        if not self.is_failing:
            return True
        if now_s >= self._sample_at_s:
            self._sample_at_s = now_s + self._rule.every_s
            return True
        self._held_back += 1
        return bool(self._rule.one_in) and self._held_back % self._rule.one_in == 0

    def wait_ms(self, now_s: float) -> int:
        """The time until the next call is let through for certain, at least 1."""
        return max(0, int((self._sample_at_s - now_s) * 1000)) + 1

    def failed(self, now_s: float) -> None:
        self._add(failed=True)
        self._in_a_row, self._failed_s = 0, now_s
        if not self.is_failing and self._failures >= self._rule.failures:
            self.is_failing = True
            self._sample_at_s = now_s + self._rule.every_s

    def succeeded(self, now_s: float) -> None:
        self._add(failed=False)
        self._in_a_row += 1
        is_quiet = now_s - self._failed_s >= self._rule.quiet_s
        if self.is_failing and (is_quiet or self._in_a_row >= self._rule.successes):
            self.is_failing = False
            self._recent.clear()
            self._failures = 0

    def _add(self, *, failed: bool) -> None:
        if len(self._recent) == self._rule.judged:
            self._failures -= self._recent[0]
        self._recent.append(failed)
        self._failures += failed
