"""The broker's access to the store: coroutines with a time-out, and exact about unknown outcomes.

Changes go through storage threads, which commit the changes that arrive meanwhile together. Reads run in
threads of their own: some for clients, which may take long, and some for the broker's own work, so that a
count of millions of rows delays no push. Clients take turns, so that one with many reads delays another by
the reads that are under way alone. A call that takes longer than `patience_s` is withdrawn from its
queue: nothing was changed, and the store is unavailable. A change that a commit has taken meanwhile cannot be
withdrawn, and is answered as unknown. A full queue refuses at once.

The storage threads use a clock that raises while it is too far from the store's: then a change is refused,
also one that is in its queue already. A read that changes something takes the time from the same clock.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_health import StoreHealth
from chronoline.broker.trusted_clock import TrustedClock
from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
)
from chronoline.core.limits import CLOCK_BOUND_MS
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.admission import served_client
from chronoline.runtime.clock import Clock
from chronoline.runtime.service import Closable
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)

_OWN_QUERIES = frozenset(
    {
        "changed_topics",
        "clock",
        "due_schedules",
        "held",
        "identity",
        "members",
        "next_schedule",
        "next_ts",
        "purge",
        "ready",
        "step_schedules",
        "topic",
        "unreserve",
    }
)
"""Reads that the broker's own work waits for. Each is quick; all others are reads of clients."""
_REMOVALS = frozenset({"purge"})
"""Reads that write. A store can accept them while it has no room for other changes."""
# With the storage threads, at most three, as many as PostgreSQL's pool has connections.
_CLIENT_THREADS = 3
_OWN_THREADS = 2
_MOST_WAITING = 4_000
"""The most waiting reads of clients, and of the broker's own work."""
_SHARES = 4
"""One client has this part of the waiting reads at most."""

Result = TypeVar("Result")
_Read = tuple[Future[Any], Callable[[], Any]]


class StoreAccess:
    """One for each node, until `stop`. The store's owner closes it after that."""

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
        self._client_reads = ReadThreads(
            "chronoline-look", threads=_CLIENT_THREADS, most_waiting=_MOST_WAITING
        )
        self._own_reads = ReadThreads(
            "chronoline-own-look", threads=_OWN_THREADS, most_waiting=_MOST_WAITING
        )
        self._metrics = metrics
        self.patience_s = patience_s
        self._health = StoreHealth()
        self._answered_s = 0.0  # when the store last answered any call

    @property
    def problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._health.problem

    @property
    def silent_s(self) -> float:
        """The time since the store last answered a call."""
        return time.perf_counter() - self._answered_s

    @property
    def refusal(self) -> str:
        """Why the store, which answers, takes no changes: no room, or another process writes."""
        return self._health.refusal(time.monotonic())

    async def compare_clocks(self) -> None:
        """Compares the broker's clock with the store's."""
        await self.call("clock", self.clock.compare)

    async def change(
        self, query: str, submit: Callable[[StorageThreads], Future[Result]], *, topic: str = ""
    ) -> Result:
        """A change through the storage threads. `query` and `topic` name it in the metrics."""
        self._health.admit(time.monotonic())
        try:
            result = await self._answer(
                (query, topic), lambda: submit(self._threads), self._unknown
            )
        except (StoreBusy, StoreFull) as error:
            if error.answered is None:  # otherwise it concerns these messages alone
                self._health.refused(error, time.monotonic())
            raise
        self._health.changed()
        return result

    async def identity(self) -> str:
        """The identity of the store."""
        return await self.call("identity", lambda store: store.identity())

    async def await_durable(self) -> None:
        """Waits until all that was read is as durable as a change: before a request is answered by it."""
        await self.call("await_durable", lambda store: store.await_durable(), changes=True)

    async def call(
        self,
        query: str,
        read: Callable[[Store], Result],
        *,
        topic: str = "",
        changes: bool = False,
    ) -> Result:
        """A read; or a rare change, not worth a group commit, whose outcome is unknown if it is late."""
        self._health.admit(time.monotonic())
        own = query in _OWN_QUERIES
        threads = self._own_reads if own else self._client_reads
        client = "" if own else served_client()
        late = self._unknown if changes else self._unanswered
        asked: list[Future[Result]] = []

        def submit() -> Future[Result]:
            asked.append(threads.submit(lambda: read(self._store), client))
            return asked[0]

        try:
            result = await self._answer((query, topic), submit, late, may_last=not own)
        except (StoreBusy, StoreFull) as error:
            if asked and (changes or query in _REMOVALS):  # else the queue is full
                self._health.refused(error, time.monotonic())
            raise
        if changes:
            self._health.changed()
        return result

    def _unanswered(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store did not answer within {self.patience_s:g} s")

    def _withdrawn(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store did not answer within {self.patience_s:g} s; nothing was changed. Try again"
        )

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the store did not answer within {self.patience_s:g} s, so the change may have happened or not;"
            " ask again with the same ids"
        )

    async def _answer(
        self,
        named: tuple[str, str],
        ask: Callable[[], Future[Result]],
        late: Callable[[], StoreUnavailable | OutcomeUnknown],
        *,
        may_last: bool = False,
    ) -> Result:
        """A call that `may_last` can be late without marking the store unhealthy, if others were answered."""
        started_s = time.perf_counter()
        asked: Future[Result] | None = None
        try:
            asked = ask()
            async with asyncio.timeout(self.patience_s):
                result = await asyncio.wrap_future(asked)
        except TimeoutError:
            self._metrics.query_failed(*named)
            is_withdrawn = asked is not None and asked.cancel()
            error = self._withdrawn() if is_withdrawn else late()
            if not (may_last and self._answered_s > started_s):
                self._health.failed(error, time.monotonic())
            raise error from None
        except (StoreBusy, StoreFull):  # it answered
            self._metrics.query_failed(*named)
            raise
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._metrics.query_failed(*named)
            if error.answered is None:
                self._health.failed(error, time.monotonic())
            raise
        self._health.answered(time.monotonic())
        self._answered_s = time.perf_counter()
        self._metrics.queried(*named, took_s=self._answered_s - started_s)
        return result

    async def stop(self) -> None:
        """Finishes waiting calls, if the store answers within `patience_s`. May be called twice."""
        await close_in_thread("the access to the store", self._close, patience_s=self.patience_s)

    def _close(self) -> None:
        self._threads.close()
        self._client_reads.close()
        self._own_reads.close()


class ReadThreads(Closable):
    """A few threads that call the store, and the bounded queues before them, one for each client.

    Each call gets a future, which can be cancelled before its turn. The threads are daemons: those of
    `concurrent.futures` would keep the process until a store that hangs has answered.
    """

    def __init__(self, name: str, *, threads: int, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        # By client; the first one has the next turn.
        self._waiting: dict[str, deque[_Read]] = {}
        self._count = 0
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, ask: Callable[[], Result], client: str = "") -> Future[Result]:
        """Raises `StoreBusy` if too many wait. A cancelled call is in the queue until its turn."""
        answer: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise StoreClosed
            queue = self._waiting.get(client, deque())
            if self._count >= self._most_waiting or len(queue) >= self._most_waiting // _SHARES:
                raise StoreBusy(f"{len(queue)} reads wait for the store already; try again")
            queue.append((answer, ask))
            self._waiting[client] = queue
            self._count += 1
            self._changed.notify()
        return answer

    def close(self) -> None:
        """Answers the waiting calls, and ends the threads. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """False at the end. It keeps no reference to a call while it waits for the next."""
        waiting = self._take()
        if waiting is None:
            return False
        answer, ask = waiting
        if answer.set_running_or_notify_cancel():
            try:
                result = ask()
            except BaseException as error:  # the caller gets it, and the thread continues
                answer.set_exception(error)
            else:
                answer.set_result(result)
        return True

    def _take(self) -> _Read | None:
        """The next read, of the client that has waited longest for a turn; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            taken = queue.popleft()
            if queue:
                self._waiting[client] = queue  # behind the others
            self._count -= 1
            return taken


async def close_in_thread(what: str, work: Callable[[], None], *, patience_s: float) -> None:
    """Closes a part that can hang on the store, in a thread of its own, with a time-out.

    After the time-out the thread stays behind: it ends by itself, or with the process.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def run() -> None:
        try:
            work()
        except Exception:
            logger.exception("closing %s failed", what)
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="chronoline-end", daemon=True).start()
    try:
        async with asyncio.timeout(patience_s):
            await ended.wait()
    except TimeoutError:
        logger.warning(
            "%s did not close within %g s; its thread stays behind",
            what,
            patience_s,
            extra={"action": "left_behind"},
        )
