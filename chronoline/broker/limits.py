"""The limits of a broker, for one client and in all, so that a flood delays only itself."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.broker.subscription import MAX_CREDIT
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.runtime.admission import PATIENCE_S, Admission
from chronoline.stores.contract import MAX_BATCH

_PINGS_A_SECOND = 250
"""The most pings of all streams together, unless clients would count as silent too late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a broker."""

    frame_bytes: int = 16 * 1024 * 1024
    """The largest frame, and the largest request over HTTP. A body may be at most half of it."""
    batch: int = MAX_BATCH
    """The most messages in one frame."""
    credit: int = MAX_CREDIT
    """The most messages that one consumer can request ahead, for each topic."""
    in_flight_bytes: int = 32 * 1024 * 1024
    """The most bytes of unanswered requests of one connection, in at most 1,000 requests; beyond it the
    broker stops reading the connection."""
    connections: int = 1_000
    """The most open streams, and the most connections of each listener."""
    node_bytes: int = 256 * 1024 * 1024
    """The most bytes of unanswered requests of all clients, by gRPC, HTTP and timers. One client gets a
    quarter, or two frames. A request beyond that waits up to 10 s, and is then refused with
    `node_busy`."""
    node_requests: int = 4_000
    """The most unanswered requests of all clients; one client may have a quarter of them."""
    schedules: int = 10_000
    """The most schedules of one topic; the next one is refused."""
    ping_interval_ms: int = 1_000
    """How often clients ping; with more than 250 streams less often, up to a third of `ping_timeout_ms`."""
    ping_timeout_ms: int = 10_000
    """A client that sends nothing, or reads nothing, for this time is disconnected."""
    clock_bound_ms: int = CLOCK_BOUND_MS
    """A client's clock that is further off is reported; if the store's is, the broker changes nothing."""

    def ping_interval_of(self, streams: int) -> int:
        """The interval of pings in milliseconds, with this number of open streams.

        A ping and its pong cost the broker about 0.2 ms, so the streams share a bounded number of them. A
        client that is silent still misses three before it is disconnected.
        """
        spread_ms = min(streams * 1_000 // _PINGS_A_SECOND, self.ping_timeout_ms // 3)
        return max(self.ping_interval_ms, spread_ms)

    def admission(self, *, patience_s: float = PATIENCE_S) -> Admission:
        """The bounds for the requests of all clients together."""
        return Admission(
            most_bytes=self.node_bytes,
            most_requests=self.node_requests,
            largest_bytes=self.frame_bytes,
            patience_s=patience_s,
        )


def check_batch(count: int, limits: Limits) -> None:
    """Raises `InvalidInput` for a batch that is too large."""
    if count > limits.batch:
        raise InvalidInput(
            f"a batch of {count} messages; at most {limits.batch} are allowed: send it in parts"
        )
