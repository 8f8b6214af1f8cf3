"""The health of the store: a circuit breaker, and whether it accepts changes."""

from __future__ import annotations

from collections.abc import Callable

from chronoline.core.errors import StoreUnavailable

_FAILURES = 3
"""Failures in a row after which the store counts as away."""
PROBE_EVERY_S = 0.2
"""While the store is away, one call in this time goes through, as a probe."""

_LATELY_S = 5.0


class StoreHealth:
    """While the store keeps failing, most calls are refused at once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures = 0
        self._probe_at_s = 0.0
        self._problem = ""
        self._refusal, self._refused_s = "", 0.0

    @property
    def problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._problem if self._failures >= _FAILURES else ""

    def admit(self) -> None:
        """Raises `StoreUnavailable` if this call must not be made."""
        if self._failures < _FAILURES:
            return
        now_s = self._monotonic()
        if now_s < self._probe_at_s:
            error = StoreUnavailable(f"the store is away; nothing was changed: {self._problem}")
            error.retry_after_ms = int((self._probe_at_s - now_s) * 1000) + 1
            raise error
        self._probe_at_s = now_s + PROBE_EVERY_S

    @property
    def refusal(self) -> str:
        """Why it refused a change within the last seconds; empty if it accepted one since."""
        lately = self._monotonic() - self._refused_s < _LATELY_S
        return self._refusal if lately else ""

    def refused(self, error: BaseException) -> None:
        """The store answered that it accepts no change."""
        self._refusal, self._refused_s = str(error), self._monotonic()

    def changed(self) -> None:
        """The store accepted a change."""
        self._refusal = ""

    def answered(self) -> None:
        self._failures = 0

    def failed(self, error: BaseException) -> None:
        self._failures += 1
        self._problem = str(error)
        self._probe_at_s = self._monotonic() + PROBE_EVERY_S
