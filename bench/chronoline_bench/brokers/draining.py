"""Many messages that lie there, and consumers that take them all as fast as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from chronoline.core.errors import ChronolineError
from chronoline_bench.brokers.lines import now_us
from chronoline_bench.brokers.passage import Came
from chronoline_bench.brokers.stage import TABLE, Stage
from chronoline_bench.brokers.targets import TAKE, Broker, BrokerTarget, Table, TableTarget

PREFETCH = 1_000
"""What a consumer that wants much has in hand."""
TAKES = (1, TAKE)
"""How many jobs a consumer of the hand-written queue takes at a time.

One at a time, each has a lease and an ack of its own, as with a broker; many at a time share them.
"""
_FILLED_A_SECOND = 20_000
_LEAD_MS = 1_500
_OVERDUE_MS = 10_000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Drained:
    """All of them have come, as far as they do."""

    came: Came
    due_us: int
    ready_us: int
    """When the consumers were ready."""

    @property
    def rate(self) -> float:
        """Messages a second, from the first that came to the last ack."""
        took_us = max(1, self.came.last_ack_us - self.came.first_us)
        return len(self.came.arrivals.first_us) * 1_000_000 / took_us

    @property
    def last_s(self) -> float:
        """From when they were due until the last had come."""
        return (self.came.last_us - self.due_us) / 1_000_000


Drain = Callable[[int], Drained]
"""Of messages that are due at a moment."""


def draining_topic(stage: Stage, broker: Broker, messages: int, consumers: int) -> Drain:
    def drain(due_ms: int) -> Drained:
        target = broker.open()
        target.fill(messages, due_ms, 0, lambda _: None)
        return _drain(stage, target, consumers, due_ms, prefetch=PREFETCH)

    return drain


def draining_table(stage: Stage, table: Table, messages: int, consumers: int, take: int) -> Drain:
    def drain(due_ms: int) -> Drained:
        target = table.open()
        target.fill(messages, due_ms)
        return _drain(stage, target, consumers, due_ms, take=take)

    return drain


def taking(take: int) -> str:
    return f"{TABLE}, {take} at a time"


def _drain(
    stage: Stage, target: BrokerTarget | TableTarget, consumers: int, due_ms: int, **more: int
) -> Drained:
    messages = target.reserve(0)
    with stage.crowd(target, consumers, **more) as crowd:
        ready_us = now_us()
        due_us = due_ms * 1_000
        time.sleep(max(0, due_us - ready_us) / 1_000_000)  # until it begins
        crowd.await_settled(messages)
    stage.check(target, dict.fromkeys(range(messages), due_us), crowd.came)
    return Drained(crowd.came, due_us, ready_us)


def drain_overdue(drain: Drain) -> float:
    """Messages a second, of what has been due for a while."""
    return drain(now_us() // 1_000 - _OVERDUE_MS).rate


def drain_instant(drain: Drain, messages: int) -> float:
    """Seconds from the instant until the last has come. All lie there before it, and consumers wait."""
    lead_ms = _LEAD_MS + messages * 1_000 // _FILLED_A_SECOND
    for _ in range(_TRIES):
        drained = drain(now_us() // 1_000 + lead_ms)
        if drained.ready_us <= drained.due_us:
            return drained.last_s
        lead_ms *= 2
    raise ChronolineError(f"{messages} messages could not be filled in before they were due")
