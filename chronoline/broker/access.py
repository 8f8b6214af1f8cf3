"""The store as the broker sees it: coroutines, bounded, and honest about what is not known.

Changes go through storage lanes, which gather what arrives meanwhile into the next commit. Looks run in a few
threads. Whatever waits for longer than `patience_s` is answered as unknown, if it was a change, and as
unavailable, if it was a look; a queue that is full refuses at once.

The lanes go by a clock that does not tell the time while it is too far from the store's: then a change is
refused, also one that waits in its queue already. Whoever changes something in a look takes the time from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from chronoline.broker.drifting import TrustedClock
from chronoline.broker.health import StoreHealth
from chronoline.broker.metrics import BrokerMetrics
from chronoline.clock import Clock
from chronoline.core.closing import Closing
from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.lanes.storage import StorageLanes
from chronoline.stores.contract import Store

_LOOKERS = 4
_MOST_LOOKS = 1_000

Result = TypeVar("Result")


class StoreAccess(Closing):
    """One for each node. The store is its owner's to close, after this."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: BrokerMetrics,
        *,
        patience_s: float = 10.0,
        clock_bound_ms: int = CLOCK_BOUND_MS,
    ) -> None:
        self._store = store
        self.clock = TrustedClock(clock, bound_ms=clock_bound_ms)
        self._lanes = StorageLanes(store, self.clock)
        self._lookers = ThreadPoolExecutor(_LOOKERS, thread_name_prefix="chronoline-look")
        self._looks = 0
        self._metrics = metrics
        self._patience_s = patience_s
        self._health = StoreHealth(time.monotonic)

    @property
    def problem(self) -> str:
        """What is wrong with the store; empty while it answers."""
        return self._health.problem

    async def compare_clocks(self) -> None:
        """Ours with the store's."""
        await self.look("clock", self.clock.compare)

    async def change(
        self, query: str, submit: Callable[[StorageLanes], Future[Result]], *, topic: str = ""
    ) -> Result:
        """A change through the lanes. `query` and `topic` name it in the metrics."""
        self._health.admit()
        return await self._answer((query, topic), lambda: submit(self._lanes), self._unknown())

    async def look(
        self,
        query: str,
        read: Callable[[Store], Result],
        *,
        topic: str = "",
        changes: bool = False,
    ) -> Result:
        """A question; or a change that is too rare for a lane, whose outcome is unknown if it is late."""
        self._health.admit()
        if self._looks >= _MOST_LOOKS:
            raise StoreBusy(f"{self._looks} questions wait for the store already; try again")
        late: StoreUnavailable | OutcomeUnknown = self._unknown()
        if not changes:
            late = StoreUnavailable(f"the store did not answer within {self._patience_s:g} s")
        self._looks += 1
        try:
            return await self._answer(
                (query, topic), lambda: self._lookers.submit(read, self._store), late
            )
        finally:
            self._looks -= 1

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the store did not answer within {self._patience_s:g} s, so the change may have happened or not;"
            " ask again with the same ids"
        )

    async def _answer(
        self,
        named: tuple[str, str],
        ask: Callable[[], Future[Result]],
        late: StoreUnavailable | OutcomeUnknown,
    ) -> Result:
        started_s = time.perf_counter()
        try:
            async with asyncio.timeout(self._patience_s):
                result = await asyncio.wrap_future(ask())
        except TimeoutError:
            self._metrics.query_failed(*named)
            self._health.failed(late)
            raise late from None
        except (StoreBusy, StoreFull):  # it answered
            self._metrics.query_failed(*named)
            raise
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._metrics.query_failed(*named)
            self._health.failed(error)
            raise
        self._health.answered()
        self._metrics.queried(*named, took_s=time.perf_counter() - started_s)
        return result

    def close(self) -> None:
        """Finishes what waits. May be called twice."""
        self._lanes.close()
        self._lookers.shutdown()
