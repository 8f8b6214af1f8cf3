"""The deliveries to consumers, and the invariants that must hold."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import ChronolineError, Refused
from chronoline.runtime.timestamps import to_ms


@dataclass(slots=True)
class Seen:
    """One delivery, by this machine's clock."""

    consumer: str
    version: int
    handed_ms: float
    until_ms: int
    due_ms: int
    acked_ms: float | None = None
    refused: bool = False


@dataclass(slots=True)
class History:
    """By id, in the order in which they came."""

    seen: defaultdict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))

    def handed(self, lease: AsyncLease) -> Seen:
        one = Seen(lease.consumer, lease.version, _now_ms(), to_ms(lease.until), to_ms(lease.due))
        self.seen[lease.id].append(one)
        return one

    async def ack(self, lease: AsyncLease, work_s: float = 0) -> None:
        """Record a delivery and ack it, like a handler with little work."""
        one = self.handed(lease)
        await asyncio.sleep(work_s)  # the work
        try:
            await lease.ack()
        except Refused:
            one.refused = True
        except ChronolineError:
            return  # unknown: it may come again
        else:
            one.acked_ms = _now_ms()

    async def consume(self, address: str, name: str, *, lease_s: float) -> None:
        """Ack every message until the task is cancelled."""
        async with AsyncClient(address) as client:
            acking: set[asyncio.Task[None]] = set()
            async for lease in client.consume("work", consumer=name, lease=lease_s, prefetch=200):
                task = asyncio.create_task(self.ack(lease))
                acking.add(task)
                task.add_done_callback(acking.discard)

    @property
    def acked(self) -> set[str]:
        return {each for each, those in self.seen.items() if any(one.acked_ms for one in those)}

    def early(self) -> list[str]:
        """Messages delivered before their due."""
        return [
            each for each, those in self.seen.items() if any(o.handed_ms < o.due_ms for o in those)
        ]

    def came_back(self) -> list[str]:
        """Messages delivered again after an acknowledged ack."""
        return [
            each
            for each, those in self.seen.items()
            if any(
                one.acked_ms is not None and later.handed_ms > one.acked_ms
                for place, one in enumerate(those)
                for later in those[place + 1 :]
            )
        ]

    def overlapping(self, bound_ms: float) -> list[str]:
        """Messages delivered to another consumer during an earlier lease, beyond the bound."""
        return [
            each
            for each, those in self.seen.items()
            if any(
                later.consumer != one.consumer and later.handed_ms + bound_ms < one.until_ms
                for place, one in enumerate(those)
                for later in those[place + 1 :]
            )
        ]

    def twice(self) -> int:
        return sum(len(those) - 1 for those in self.seen.values())


def _now_ms() -> float:
    return time.time_ns() / 1_000_000
