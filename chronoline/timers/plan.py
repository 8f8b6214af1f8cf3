"""The plan of a timer: its interval, repetitions and callback, and when each pop is due."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_STEP_MS = 2_000
"""How much later each replica pops than the one before it, for long timers."""
LEAST_GRACE_MS = 10_000
"""How long after its `repeat-for` a timer of a short interval may still be called."""
LONGEST_HOLD_MS = 30_000
"""The longest time that the other replicas wait for news of a call that is late already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPlan:
    """When to call which URL with what, and on how many nodes."""

    interval_ms: int
    repeat_for_ms: int
    uri: str
    opaque: str
    factor: int
    tags: tuple[tuple[str, int], ...] = ()
    traceparent: str | None = None
    """The trace of the client, which goes with each callback."""

    @property
    def characters(self) -> int:
        """The size of its texts."""
        texts = len(self.uri) + len(self.opaque) + len(self.traceparent or "")
        return texts + sum(len(tag) for tag, _ in self.tags)

    @property
    def pops(self) -> int:
        """The number of its pops. The last may fall on the very end; 0 if the end comes before the first."""
        return self.repeat_for_ms // self.interval_ms if self.interval_ms else 1

    def due_ms(self, start_ms: int, pop: int) -> int:
        """When a pop is due; the first is number 1."""
        return start_ms + pop * self.interval_ms

    def skew_ms(self, level: int, replicas: int) -> int:
        """How long a replica waits for those before it, whose level is 0 for the first.

        Less than half of the interval for the last one too: the timer pops within twice its interval. One
        of no interval at all is late for any wait, and is treated as a long one.
        """
        if not self.interval_ms:
            return level * LONGEST_STEP_MS
        return -(-level * min(LONGEST_STEP_MS * 2 * replicas, self.interval_ms) // (2 * replicas))

    def end_ms(self, start_ms: int) -> int:
        """When its last pop is due; its start if there is none."""
        return self.due_ms(start_ms, self.pops)

    def last_call_ms(self, start_ms: int) -> int:
        """The last moment at which it may be called: one interval after `repeat-for`, at least 10 s."""
        return start_ms + self.repeat_for_ms + max(self.interval_ms, LEAST_GRACE_MS)

    def latest_pop(self, start_ms: int, now_ms: int) -> int:
        """The number of the latest pop that is due; 0 if none is."""
        if not self.interval_ms:
            return int(now_ms >= start_ms)
        return max(0, min(self.pops, (now_ms - start_ms) // self.interval_ms))

    def hold_ms(self, late_ms: int, replicas: int, timeout_ms: int) -> int:
        """How long the other replicas wait for news of a call that is `late_ms` late and not over.

        As long as a call may take, but not longer than half an interval. If the node that calls dies, another
        pops within twice the interval, unless it is too late for that: then the lateness at most doubles.
        """
        hold_ms = timeout_ms
        if self.interval_ms:
            hold_ms = min(hold_ms, self.interval_ms // 2)
        hold_ms = max(hold_ms, min(late_ms, LONGEST_HOLD_MS))
        left_ms = self.interval_ms - self.skew_ms(replicas - 1, replicas) - late_ms
        return min(hold_ms, left_ms) if left_ms > 0 else hold_ms
