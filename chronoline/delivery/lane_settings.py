"""The settings of a publishing lane, and its report on a window."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_RESERVE_AHEAD_MS
from chronoline.delivery.lane import DEFAULT_HOLD_MS, DEFAULT_RETRY_MS

DEFAULT_POLL_MS = 100
DEFAULT_MAX_IN_FLIGHT = 10_000
DEFAULT_PATIENCE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """The settings of a publishing lane. Raises `InvalidInput` for invalid ones."""

    hold_ms: int = DEFAULT_HOLD_MS
    """The duration of its leases: after a crash others serve its messages that much later."""
    reserve_ahead_ms: int = DEFAULT_RESERVE_AHEAD_MS
    poll_ms: int = DEFAULT_POLL_MS
    """How often it reserves in dense traffic; never less often than every half of `reserve_ahead_ms`."""
    retry_ms: int = DEFAULT_RETRY_MS
    """When a message that the output refused is tried again."""
    timing_advance_ms: int = 0
    """How much before its due a message is published."""
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    """The most messages that are held and in flight."""
    patience_ms: int = DEFAULT_PATIENCE_MS
    """How long the lease of a message is extended that the output does not answer."""

    def __post_init__(self) -> None:
        reach_ms = self.reserve_ahead_ms + self.timing_advance_ms
        problem = None
        for name in ("reserve_ahead_ms", "poll_ms", "max_in_flight", "patience_ms"):
            if getattr(self, name) < 1:
                problem = f"{name} must be at least 1, not {getattr(self, name)}"
        if self.timing_advance_ms < 0:
            problem = f"timing_advance_ms must be at least 0, not {self.timing_advance_ms}"
        elif reach_ms > MAX_RESERVE_AHEAD_MS:
            problem = (
                "reserve_ahead_ms and timing_advance_ms must be at most"
                f" {MAX_RESERVE_AHEAD_MS} together, not {reach_ms}"
            )
        if problem:
            raise InvalidInput(problem)


DEFAULT_LANE_SETTINGS = LaneSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """The results of one window."""

    fired: int = 0
    """Acknowledged by the output."""
    failed: int = 0
    """Refused by the output, to be tried again or to become dead letters."""
    given_back: int = 0
    """Unreserved: the output was not available, or there was no time left for them."""
    lapsed: int = 0
    """Not published because their leases were over; they are served again."""
    taken_over: int = 0
    """Reserved from a holder whose lease had lapsed."""
    skipped: bool = False
    """Whether the window was over before it began, so that nothing was done."""
