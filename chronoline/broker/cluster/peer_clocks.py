"""The clocks of other brokers beside ours, from the stamps in the coordination service.

A stamp has a time by its writer's clock, and arrives later by an unknown time. So it bounds the offset on one
side: when it arrives, its writer's clock shows at least the stamp. The best of the last stamps, which
travelled fastest, is the bound. The other side comes from the peer: each stamp says by how much, at least,
the writer saw other clocks ahead of its own. Both together bound the offset to the fastest travel time there
and back.

Bounds are kept relative to the monotonic clock: a broker whose own clock is moved knows the new offsets at
once. A clock that is moved begins another *epoch*, of which its stamps tell; older bounds no longer count.
All of it is decided here alone, with the time as an argument.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from chronoline.coordination.membership import ClockSight, ClockStamp

_KEPT = 8
"""The number of last stamps whose bounds count."""
_CLOSE_MS = 100.0
"""Bounds further apart, as of a broker that has just started, say only how large an offset is at least."""
_MOVED_MS = 50.0
"""Our clock was moved if it gained or lost this much against the monotonic clock since the last reading."""
_ROUNDED_MS = 5.0
"""Bounds may contradict each other by this much: stamps are in whole milliseconds, and clocks are slewed."""
_REMEMBERED_S = 60.0
"""A broker that vanished is shown for this time."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """How far another clock is ahead of ours: between these."""

    low_ms: float = -math.inf
    high_ms: float = math.inf

    @property
    def least_ms(self) -> float:
        """The offset nearest to 0 that is possible."""
        return max(self.low_ms, 0.0) or min(self.high_ms, 0.0)

    @property
    def likely_ms(self) -> float:
        """The middle of close bounds. That of others is not an offset, but the time that stamps travelled."""
        if self.high_ms - self.low_ms > _CLOSE_MS:
            return self.least_ms
        return (self.low_ms + self.high_ms) / 2


@dataclass(slots=True)
class _Peer:
    """The bounds of one peer's clock, relative to our monotonic clock."""

    epoch: int
    wall_ms: int = -1
    lows_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    highs_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def agree(self) -> None:
        """Forgets older bounds that contradict the newest ones."""
        if max(self.lows_ms) - min(self.highs_ms, default=math.inf) > _ROUNDED_MS:
            self.lows_ms = deque([self.lows_ms[-1]], maxlen=_KEPT)
            self.highs_ms = deque([self.highs_ms[-1]], maxlen=_KEPT)
        if max(self.lows_ms) - min(self.highs_ms, default=math.inf) > _ROUNDED_MS:
            self.highs_ms.clear()

    def beside(self, own_ms: float) -> OffsetRange:
        low_ms, high_ms = max(self.lows_ms), min(self.highs_ms, default=math.inf)
        return OffsetRange(low_ms - own_ms, max(low_ms, high_ms) - own_ms)


class PeerClocks:
    """The clocks of the peers of one broker. Wall and monotonic time are read together."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._peers: dict[str, _Peer] = {}
        self._own_ms: float | None = None
        self.epoch = 0
        """Begins anew when our clock is moved."""

    def read(self, wall_ms: float, monotonic_ms: float) -> float:
        """Our clock relative to the monotonic one."""
        own_ms = wall_ms - monotonic_ms
        if self._own_ms is not None and abs(own_ms - self._own_ms) > _MOVED_MS:
            self.epoch += 1
        self._own_ms = own_ms
        return own_ms

    def received(self, stamp: ClockStamp, wall_ms: float, monotonic_ms: float) -> None:
        """A stamp is seen; also repeatedly, and our own."""
        own_ms = self.read(wall_ms, monotonic_ms)
        peer = self._peers.get(stamp.broker)
        if stamp.broker == self._broker or (peer and peer.wall_ms == stamp.wall_ms):
            return
        if peer is None or peer.epoch != stamp.epoch:
            peer = self._peers[stamp.broker] = _Peer(stamp.epoch)
        peer.wall_ms = stamp.wall_ms
        peer.lows_ms.append(stamp.wall_ms - monotonic_ms)
        for sight in stamp.seen:
            if (sight.broker, sight.epoch) == (self._broker, self.epoch):
                peer.highs_ms.append(own_ms - sight.ahead_ms)
        peer.agree()

    def keep(self, brokers: Iterable[str]) -> None:
        """Forgets all other brokers."""
        kept = frozenset(brokers)
        self._peers = {name: each for name, each in self._peers.items() if name in kept}

    def stamp(self, wall_ms: int, monotonic_ms: float) -> ClockStamp:
        """Our stamp."""
        offsets = self.offsets(wall_ms, monotonic_ms)
        seen = tuple(
            ClockSight(name, self._peers[name].epoch, math.floor(each.low_ms))
            for name, each in sorted(offsets.items())
        )
        return ClockStamp(self._broker, wall_ms, self.epoch, seen)

    def offsets(self, wall_ms: float, monotonic_ms: float) -> dict[str, OffsetRange]:
        """How far the clock of each peer is ahead of ours."""
        own_ms = self.read(wall_ms, monotonic_ms)
        return {name: each.beside(own_ms) for name, each in self._peers.items()}


class PeerRoster:
    """The peers that are there, and those that vanished lately without leaving."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._present: set[str] = set()
        self._vanished_s: dict[str, float] = {}

    def seen(self, stamps: Iterable[ClockStamp], now_s: float) -> None:
        """These brokers are in a view that is current."""
        there = {each.broker: each.leaving for each in stamps if each.broker != self._broker}
        for name in self._present - there.keys():
            self._vanished_s[name] = now_s
        for name in there:
            self._vanished_s.pop(name, None)
        self._present = {name for name, leaving in there.items() if not leaving}

    def vanished(self, now_s: float) -> list[str]:
        """The brokers that vanished within the last minute."""
        return sorted(
            name for name, at_s in self._vanished_s.items() if now_s - at_s < _REMEMBERED_S
        )

    def forget(self, now_s: float) -> None:
        """Forgets brokers that vanished long ago."""
        kept = self.vanished(now_s)
        self._vanished_s = {name: self._vanished_s[name] for name in kept}
