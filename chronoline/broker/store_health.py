"""Whether the store answers, and which calls are let through while it does not.

- *Silent*: a probe was not answered (`store_probe`). No call goes through until the store has answered one.
- *Unfinished*: it answers reads, and no commit ends, as while a synchronous standby is away. Reads go
  through, and no changes, until the commit of the probe has ended.
- *Away*: some calls in a row failed. One call in 200 ms goes through as a probe; an answer ends it.
- *Failing*: half of the last calls failed. One in ten goes through as a sample, and one in 50 ms
  (`failure_sampler`).
- *Refusing*: the store answers that it takes no changes, since it has no room or another process writes. All
  calls go through: the store refuses at once by itself.

Calls that do not go through are refused at once with the time to try again, so that they wait neither in a
queue nor for a time-out. Time is an argument.
"""

from __future__ import annotations

from chronoline.broker.failure_sampler import FailureSampler, SampleRule
from chronoline.core.errors import StoreBusy, StoreUnavailable
from chronoline.stores.contract import Reach

_FAILURES = 3
"""The number of failures in a row after which the store counts as away."""
_PROBE_EVERY_S = 0.2
"""While the store is away, one call in this time goes through."""
_FAILING = SampleRule(judged=20, failures=10, every_s=0.05, one_in=10)
_LATELY_S = 5.0
_ASK_AGAIN_MS = 500
"""The interval of the probes."""
UNFINISHED = "a commit does not end, while reads are answered: a synchronous standby may be away"


class StoreHealth:
    """The store's health, as its calls show it."""

    def __init__(self) -> None:
        self._in_a_row = 0  # failures
        self._probe_at_s = 0.0
        self._problem = ""
        self._silence = ""
        self._is_unfinished = False
        self._sampler = FailureSampler(_FAILING)
        self._refusal, self._refused_s = "", 0.0

    @property
    def problem(self) -> str:
        """Why most calls do not go through; empty while all do."""
        if self._silence:
            return self._silence
        if self._is_away:
            return self._problem
        if self._sampler.is_failing:
            return f"{self._sampler.shown} calls of the store failed: {self._problem}"
        return ""

    @property
    def _is_away(self) -> bool:
        return self._in_a_row >= _FAILURES

    def admit(self, now_s: float, *, changes: bool = False) -> None:
        """Raises `StoreUnavailable` if a call, which `changes` something or not, must not be made."""
        self.check(changes=changes)
        if self._is_away:
            if now_s < self._probe_at_s:
                raise self._unavailable(int((self._probe_at_s - now_s) * 1000) + 1)
            self._probe_at_s = now_s + _PROBE_EVERY_S
        elif not self._sampler.admits(now_s):
            raise self._unavailable(int(_PROBE_EVERY_S * 1000))

    def check(self, *, changes: bool) -> None:
        """Raises `StoreUnavailable` while no call goes through, or no change."""
        if self._silence:
            raise self._unavailable(_ASK_AGAIN_MS)
        if changes and self._is_unfinished:
            error = StoreBusy(
                f"the store takes no changes: {UNFINISHED}; nothing was changed. Try again"
            )
            error.retry_after_ms = _ASK_AGAIN_MS
            raise error

    def _unavailable(self, retry_after_ms: int) -> StoreUnavailable:
        error = StoreUnavailable(f"the store is unavailable; nothing was changed: {self.problem}")
        error.retry_after_ms = retry_after_ms
        return error

    def answered(self, now_s: float) -> None:
        self._in_a_row = 0
        self._silence = ""
        self._sampler.succeeded(now_s)

    def failed(self, error: BaseException, now_s: float) -> None:
        """The store did not answer, or could not be reached."""
        self._in_a_row += 1
        self._problem = str(error)
        self._probe_at_s = now_s + _PROBE_EVERY_S
        self._sampler.failed(now_s)

    def probed(self, reach: Reach, now_s: float, *, within_s: float) -> None:
        """How far a probe got within a time."""
        if reach is Reach.NOTHING:
            self._silence = f"the store did not answer within {within_s:g} s"
            return
        self._is_unfinished = reach is Reach.READS
        self.answered(now_s)

    def refusal(self, now_s: float) -> str:
        """Why it takes no changes: a commit does not end, or one was refused and none accepted since."""
        if self._is_unfinished:
            return UNFINISHED
        return self._refusal if now_s - self._refused_s < _LATELY_S else ""

    def refused(self, error: BaseException, now_s: float) -> None:
        """The store answered that it accepts no change."""
        self._refusal, self._refused_s = str(error), now_s

    def changed(self) -> None:
        """The store accepted a change."""
        self._refusal = ""
