"""The gate before an output: how it goes from a failure back to full speed.

Open: everything passes. When the output fails, the gate is shut for a moment; then one message is let
through and put on trial. Its success opens the gate, another failure shuts it again. Any other success opens
it too: the output works.

A gate may outlive its lane, so that the next one over the same output begins with what is known of it. It
reads no clock and is not thread-safe: the lane that has it guards it, one at a time.
"""

from __future__ import annotations

DEFAULT_SHUT_MS = 200


class OutputGate:
    """Open at first."""

    def __init__(self, shut_ms: int = DEFAULT_SHUT_MS, *, longest_ms: int = 0) -> None:
        """Each failed trial doubles the time for which it is shut, up to `longest_ms`."""
        self._first_ms = self._shut_ms = shut_ms
        self._longest_ms = max(shut_ms, longest_ms)
        self._shut_until: int | None = None  # None: open
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        return self._shut_until is None

    def allows(self, now_ms: int) -> int | None:
        """The number of messages that may pass now; None means all."""
        if self._shut_until is None:
            return None
        opens_at = self.opens_at(now_ms)
        return 1 if opens_at is not None and opens_at <= now_ms else 0

    def opens_at(self, now_ms: int) -> int | None:
        """When the next message may pass, possibly in the past; None while one is on trial."""
        if self._on_trial:
            return None
        if self._shut_until is None or self._shut_until > now_ms + self._shut_ms:
            return now_ms  # a moment that lies further ahead is from before the clock was put back
        return self._shut_until

    def passed(self) -> None:
        """A message passed; while the gate is shut, it is the one on trial."""
        self._on_trial = self._shut_until is not None

    def failed(self, now_ms: int) -> None:
        """The output failed as a whole."""
        if self._on_trial:
            self._shut_ms = min(2 * self._shut_ms, self._longest_ms)
        self._shut_until = now_ms + self._shut_ms
        self._on_trial = False

    def undecided(self) -> None:
        """The message on trial gives no answer about the output: another may be tried."""
        self._on_trial = False

    def succeeded(self) -> None:
        self._shut_ms = self._first_ms
        self._shut_until = None
        self._on_trial = False
