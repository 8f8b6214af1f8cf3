"""The store as the broker sees it: coroutines, bounded, and honest about what is not known.

Changes go through storage threads, which gather what arrives meanwhile into the next commit. Looks run in
threads of their own: some for clients, which may take long, and some for the broker's own work, so that a
count of millions delays no push. A change that takes longer than `patience_s` is answered as unknown, a look
as unavailable; a queue that is full refuses at once.

The threads go by a clock that does not tell the time while it is too far from the store's: then a change is
refused, also one that waits in its queue already. Whoever changes something in a look takes the time from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from chronoline.broker.health import StoreHealth
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.read_threads import Lookers
from chronoline.broker.shutdown import end
from chronoline.broker.trusted_clock import TrustedClock
from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store

_OWN_LOOKS = frozenset(
    {"clock", "held", "members", "next_ts", "purge", "ready", "topic", "unreserve"}
)
"""What the broker's own work waits for. Each is quick; everything else is a client's question."""
_REMOVALS = frozenset({"purge"})
"""They write, though a store that takes them may have no room for anything else."""
# With the storage threads, at most three, as many as PostgreSQL's pool has connections.
_CLIENTS_LOOKERS = 3
_OWN_LOOKERS = 2
_MOST_LOOKS = 1_000
"""That wait for either of them."""

Result = TypeVar("Result")


class StoreAccess:
    """One for each node, until `stop`. The store is its owner's to close, after that."""

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
        self._threads = StorageThreads(store, self.clock)
        self._clients_lookers = Lookers(
            "chronoline-look", threads=_CLIENTS_LOOKERS, most_waiting=_MOST_LOOKS
        )
        self._own_lookers = Lookers(
            "chronoline-own-look", threads=_OWN_LOOKERS, most_waiting=_MOST_LOOKS
        )
        self._metrics = metrics
        self.patience_s = patience_s
        self._health = StoreHealth(time.monotonic)
        self._answered_s = 0.0  # when it last was, whatever was asked

    @property
    def problem(self) -> str:
        """What is wrong with the store; empty while it answers."""
        return self._health.problem

    @property
    def refusal(self) -> str:
        """Why the store, which answers, takes no changes: no room, or another process writes."""
        return self._health.refusal

    async def compare_clocks(self) -> None:
        """Ours with the store's."""
        await self.look("clock", self.clock.compare)

    async def change(
        self, query: str, submit: Callable[[StorageThreads], Future[Result]], *, topic: str = ""
    ) -> Result:
        """A change through the storage threads. `query` and `topic` name it in the metrics."""
        self._health.admit()
        try:
            result = await self._answer(
                (query, topic), lambda: submit(self._threads), self._unknown()
            )
        except (StoreBusy, StoreFull) as error:
            if error.answered is None:  # else it concerns these messages alone
                self._health.refused(error)
            raise
        self._health.changed()
        return result

    async def look(
        self,
        query: str,
        read: Callable[[Store], Result],
        *,
        topic: str = "",
        changes: bool = False,
    ) -> Result:
        """A question; or a rare change, not worth a group commit, whose outcome is unknown if it is late."""
        self._health.admit()
        own = query in _OWN_LOOKS
        lookers = self._own_lookers if own else self._clients_lookers
        late: StoreUnavailable | OutcomeUnknown = self._unknown()
        if not changes:
            late = StoreUnavailable(f"the store did not answer within {self.patience_s:g} s")
        asked: list[Future[Result]] = []

        def submit() -> Future[Result]:
            asked.append(lookers.submit(lambda: read(self._store)))
            return asked[0]

        try:
            result = await self._answer((query, topic), submit, late, may_last=not own)
        except (StoreBusy, StoreFull) as error:
            if asked and (changes or query in _REMOVALS):  # else it is our own queue that is full
                self._health.refused(error)
            raise
        if changes:
            self._health.changed()
        return result

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the store did not answer within {self.patience_s:g} s, so the change may have happened or not;"
            " ask again with the same ids"
        )

    async def _answer(
        self,
        named: tuple[str, str],
        ask: Callable[[], Future[Result]],
        late: StoreUnavailable | OutcomeUnknown,
        *,
        may_last: bool = False,
    ) -> Result:
        """What `may_last` says nothing of the store by being late, if others were answered meanwhile."""
        started_s = time.perf_counter()
        try:
            async with asyncio.timeout(self.patience_s):
                result = await asyncio.wrap_future(ask())
        except TimeoutError:
            self._metrics.query_failed(*named)
            if not (may_last and self._answered_s > started_s):
                self._health.failed(late)
            raise late from None
        except (StoreBusy, StoreFull):  # it answered
            self._metrics.query_failed(*named)
            raise
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._metrics.query_failed(*named)
            if error.answered is None:
                self._health.failed(error)
            raise
        self._health.answered()
        self._answered_s = time.perf_counter()
        self._metrics.queried(*named, took_s=self._answered_s - started_s)
        return result

    async def stop(self) -> None:
        """Finishes what waits, as far as the store answers within the patience. May be called twice."""
        await end("the access to the store", self._close, patience_s=self.patience_s)

    def _close(self) -> None:
        self._threads.close()
        self._clients_lookers.close()
        self._own_lookers.close()
