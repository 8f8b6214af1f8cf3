"""The limits of a topic's deliveries at one broker: a rate, and the messages that are leased at once.

The rate holds for messages as they leave: of a rate of n no second has more than n, at one broker exactly. To
that end its bucket gains as much less than n as it can hold beyond one token, a fiftieth of n. Messages are
reserved ahead of their due, so the rate bounds the reservations too: no more is held than may leave within
the time that reservations look ahead. The rest stays available in the store, for other brokers.

In a cluster each broker has the part of the limits that its consumers have of the buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS
from chronoline.core.token_bucket import TokenBucket

_BURSTS_PER_S = 50
_BEGINS_AT = 0.5
"""The part of the bound at which work goes on after a wait: single messages cost more than some at once."""


class LimitType(StrEnum):
    """A limit that holds deliveries up."""

    RATE = "rate"
    IN_FLIGHT = "in_flight"


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """The limits of a topic, or a broker's part of them. None is no limit."""

    most_per_s: float | None = None
    most_in_flight: int | None = None

    @property
    def are_set(self) -> bool:
        return self.most_per_s is not None or self.most_in_flight is not None

    def part(self, part: float) -> DeliveryLimits:
        """This part of the limits; at least one message may be in flight."""
        per_s, in_flight = self.most_per_s, self.most_in_flight
        return DeliveryLimits(
            None if per_s is None else per_s * part,
            None if in_flight is None else max(1, int(in_flight * part)),
        )


class Throttle:
    """Decides how many messages may be reserved, and how many may leave."""

    def __init__(self, limits: DeliveryLimits, now_ms: int) -> None:
        self._limits = DeliveryLimits()
        self._bucket: TokenBucket | None = None
        self._burst = 0.0
        self._per_s = 0.0
        self.set(limits, now_ms)

    def set(self, limits: DeliveryLimits, now_ms: int) -> None:
        """Other limits, from now on."""
        if limits == self._limits:
            return
        self._limits = limits
        if limits.most_per_s is None:
            self._bucket = None
            return
        self._burst = limits.most_per_s / _BURSTS_PER_S
        self._per_s = limits.most_per_s - self._burst
        if self._bucket is None:
            self._bucket = TokenBucket(self._per_s, 1 + self._burst)
        else:
            self._bucket.set(self._per_s, 1 + self._burst, now_ms)

    # Leaving

    def may_leave(self, now_ms: int) -> int | None:
        """How many messages may leave now; None is any number."""
        return None if self._bucket is None else max(0, int(self._bucket.tokens(now_ms)))

    def left(self, count: int, now_ms: int) -> None:
        if self._bucket is not None and count:
            self._bucket.take(count, now_ms)

    def leaves_at(self, now_ms: int) -> int:
        """When some may leave again."""
        if self._bucket is None:
            return now_ms
        some = max(1, int(self._burst * _BEGINS_AT))
        return now_ms + max(1, self._bucket.wait_ms(some, now_ms) or 0)

    # Reserving

    def room(self, now_ms: int, *, held: int, away: int) -> int:
        """How many more may be reserved now, while some are held and others `away` under their leases."""
        rooms = [
            each
            for each in (self._rate_room(now_ms, held), self._flight_room(held + away))
            if each is not None
        ]
        return max(0, min(rooms)) if rooms else 1 << 62

    def closed_by(self, *, held: int, away: int) -> LimitType:
        """Which limit leaves no room."""
        room = self._flight_room(held + away)
        return LimitType.IN_FLIGHT if room is not None and room <= 0 else LimitType.RATE

    def opens_at(self, now_ms: int, *, held: int, away: int) -> int | None:
        """When there is room again by the time; None if a message has to leave, or a lease to end, before."""
        room = self._flight_room(held + away)
        if self._bucket is None or (room is not None and room <= 0):
            return None
        missing = held + self._some - self._ahead
        wait_ms = self._bucket.wait_ms(missing, now_ms)
        return None if wait_ms is None else now_ms + max(1, wait_ms)

    def _rate_room(self, now_ms: int, held: int) -> int | None:
        """None without a rate. It is none at all until there is room for some."""
        if self._bucket is None:
            return None
        room = int(self._bucket.tokens(now_ms) + self._ahead + 1e-9) - held
        return room if room >= self._some or not held else 0

    def _flight_room(self, leased: int) -> int | None:
        most = self._limits.most_in_flight
        return None if most is None else most - leased

    @property
    def _ahead(self) -> float:
        """How many may leave in the time for which messages are reserved ahead."""
        return self._per_s * DEFAULT_RESERVE_AHEAD_MS / 1000

    @property
    def _some(self) -> int:
        """The fewest messages worth a reservation: half of what may be held."""
        return max(1, int(self._ahead * _BEGINS_AT))
