"""The rules for calls of targets: their number, their time, and when they are repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chronoline.callbacks.caller import Caller
from chronoline.callbacks.signature import Signer
from chronoline.runtime.backoff import Backoff

_LEAST_TURN_MS = 1_000
_MOST_TURN_MS = 10_000
_SETTLING_MS = 10_000
"""The longest outage of the store after which the answer of a call still counts."""
_MOST_STOP_MS = 5_000
_LEAST_WAIT_MS = 100
"""The delay of a message that is given back, more than a storage thread of a busy store needs to write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPolicy:
    """The rules of one node. The owner of the caller opens and closes it."""

    caller: Caller
    signer: Signer | None = None
    first_wait_ms: int = 500
    longest_wait_ms: int = 60_000

    @property
    def most_of_a_topic(self) -> int:
        """The most calls of a topic: less than a host may have, so that its other topics have a turn."""
        limits = self.caller.limits
        return max(1, min(limits.for_each_host, limits.in_all) // 2)

    @property
    def turn_ms(self) -> int:
        """The longest wait of a call for its turn."""
        return min(max(self.caller.limits.timeout_ms, _LEAST_TURN_MS), _MOST_TURN_MS)

    @property
    def lease_ms(self) -> int:
        return self.turn_ms + self.caller.limits.timeout_ms + _SETTLING_MS

    @property
    def stop_ms(self) -> int:
        """The longest wait of a stop for answers."""
        return min(self.caller.limits.timeout_ms, _MOST_STOP_MS)

    def wait_ms(self, failed: int) -> int:
        """The wait after this many failures."""
        backoff = Backoff(self.first_wait_ms, self.longest_wait_ms, spread=0.5)
        return max(int(backoff.wait(failed, random.random())), _LEAST_WAIT_MS)
