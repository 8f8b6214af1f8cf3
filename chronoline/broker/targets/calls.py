"""How targets are called: with what, how many at a time, and when again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chronoline.callbacks.backoff import wait_ms
from chronoline.callbacks.caller import Caller
from chronoline.callbacks.signature import Signer

_LEAST_TURN_MS = 1_000
_MOST_TURN_MS = 10_000
_SETTLING_MS = 10_000
"""So long the store may be away when a call was answered, and the answer still counts."""
_MOST_STOP_MS = 5_000
_LEAST_WAIT_MS = 100
"""What is given back is due a while later than a storage thread writes it, however busy the store is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """One for each node. The caller is open, and its owner's to close."""

    caller: Caller
    signer: Signer | None = None
    first_wait_ms: int = 500
    longest_wait_ms: int = 60_000

    @property
    def most_of_a_topic(self) -> int:
        """So many are under way: less than a host may have, so that its other topics have a turn."""
        limits = self.caller.limits
        return max(1, min(limits.for_each_host, limits.in_all) // 2)

    @property
    def turn_ms(self) -> int:
        """So long a call waits for its turn."""
        return min(max(self.caller.limits.timeout_ms, _LEAST_TURN_MS), _MOST_TURN_MS)

    @property
    def lease_ms(self) -> int:
        return self.turn_ms + self.caller.limits.timeout_ms + _SETTLING_MS

    @property
    def stop_ms(self) -> int:
        """So long a stop waits for answers."""
        return min(self.caller.limits.timeout_ms, _MOST_STOP_MS)

    def wait_ms(self, failed: int) -> int:
        """After so many failures."""
        grown_ms = wait_ms(
            failed, random.random(), first_ms=self.first_wait_ms, longest_ms=self.longest_wait_ms
        )
        return max(grown_ms, _LEAST_WAIT_MS)
