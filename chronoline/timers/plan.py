"""What a client asked for, and when that is due."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_STEP_MS = 2_000
"""How much later than the one before it a replica pops, for long timers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When to call whom with what, and how many nodes keep it."""

    interval_ms: int
    repeat_for_ms: int
    uri: str
    opaque: str
    factor: int
    tags: tuple[tuple[str, int], ...] = ()

    @property
    def characters(self) -> int:
        """How much there is to be told of it."""
        return len(self.uri) + len(self.opaque) + sum(len(tag) for tag, _ in self.tags)

    @property
    def pops(self) -> int:
        """How many times it pops in all. The last may fall on the very end; none if the end comes before."""
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
