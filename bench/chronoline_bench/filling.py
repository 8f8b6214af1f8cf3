"""Many waiting messages, evenly spread over a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline_bench.messages import BODY_BYTES

ID_DIGITS = 25
_PRIME = 15_485_863
"""Stepping by it, modulo the total, meets every place once, in an order like a shuffled one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Messages are written by their number; `number * stride % total` is their place on the timeline.

    Shuffled is what producers with all kinds of delays leave behind: those that fall due together lie
    apart. In order is what a fixed delay leaves behind.
    """

    total: int
    start_ms: int
    span_ms: int
    now_ms: int
    shuffled: bool = True
    body_bytes: int = BODY_BYTES

    @property
    def stride(self) -> int:
        return _PRIME if self.shuffled else 1

    def id(self, number: int) -> str:
        """As long as the ids that we make ourselves."""
        return f"m{number:0{ID_DIGITS}}"

    def due(self, number: int) -> int:
        return self.moment(number * self.stride % self.total)

    def moment(self, place: int) -> int:
        """When the message with this place falls due: so many fall due before it."""
        return self.start_ms + place * self.span_ms // self.total
