"""The broker's access to the store: coroutines with a time-out, and exact about unknown outcomes.

Changes go through storage threads, which commit the changes that arrive meanwhile together. Reads run in
threads of their own: some for clients, which may take long, and some for the broker's own work, so that a
count of millions of rows delays no push. Clients take turns, so that one with many reads delays another by
the reads that are under way alone. The probe of the store has a thread (`store_probe`), and so has the upkeep
that writes, which may hang in its commit.

A call that takes longer than `patience_s` is withdrawn from its queue: nothing was changed, and the store is
unavailable. A change that a commit has taken meanwhile cannot be withdrawn, and is answered as unknown. A
full queue refuses at once. When the store turns silent, the reads under way and the changes that still wait
in a queue end at once.

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
from enum import Enum, auto
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
from chronoline.stores.contract import Reach, Store

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
        "topic",
        "unreserve",
    }
)
"""Reads that the broker's own work waits for. Each is quick; all others are reads of clients."""
_UPKEEP = frozenset({"purge", "step_schedules"})
"""The broker's own work that writes."""
_REMOVALS = frozenset({"purge"})
"""Work that writes. A store can accept it while it has no room for other changes."""
# With the storage threads, at most three, and that of the upkeep: as many as PostgreSQL's pool has.
_CLIENT_THREADS = 3
_OWN_THREADS = 2
_MOST_WAITING = 4_000
"""The most waiting reads of clients, and of the broker's own work."""
_PROBE_LATE_S = 0.25
"""The time after that of a probe in which its thread may still tell the outcome."""
_SHARES = 4
"""One client has this part of the waiting reads at most."""

Result = TypeVar("Result")
_Read = tuple[Future[Any], Callable[[], Any]]


class _CallKind(Enum):
    """The kinds of calls that wait."""

    READ = auto()
    SINGLE = auto()
    """A rare change."""
    GROUPED = auto()
    """A change that is committed together with others."""


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
        self._upkeep = ReadThreads("chronoline-upkeep", threads=1, most_waiting=_MOST_WAITING)
        self._probes = ReadThreads("chronoline-probe", threads=1, most_waiting=_MOST_WAITING)
        self._probing: Future[Reach] | None = None
        self._metrics = metrics
        self.patience_s = patience_s
        self._health = StoreHealth()
        self._under_way: dict[asyncio.Timeout, tuple[Future[Any], _CallKind]] = {}
        """The calls that wait, by their time-outs."""
        self._answered_s = 0.0  # when the store last answered any call

    @property
    def problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._health.problem

    @property
    def refusal(self) -> str:
        """Why the store, which answers, takes no changes: no room, or another process writes."""
        return self._health.refusal(time.monotonic())

    def check_changes(self) -> None:
        """Raises `StoreUnavailable` while the store is silent, or takes no changes. It is not called."""
        self._health.check(changes=True)

    async def compare_clocks(self) -> None:
        """Compares the broker's clock with the store's."""
        await self.call("clock", self.clock.compare)

    async def change(
        self, query: str, submit: Callable[[StorageThreads], Future[Result]], *, topic: str = ""
    ) -> Result:
        """A change through the storage threads. `query` and `topic` name it in the metrics."""
        self._health.admit(time.monotonic(), changes=True)
        try:
            result = await self._answer(
                (query, topic), lambda: submit(self._threads), self._unknown, _CallKind.GROUPED
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
        writes = changes or query in _UPKEEP
        self._health.admit(time.monotonic(), changes=writes)
        own = query in _OWN_QUERIES or query in _UPKEEP
        threads = self._own_reads if own else self._client_reads
        if query in _UPKEEP:
            threads = self._upkeep
        client = "" if own else served_client()
        late = self._unknown if changes else self._unanswered
        asked: list[Future[Result]] = []

        def submit() -> Future[Result]:
            asked.append(threads.submit(lambda: read(self._store), client))
            return asked[0]

        try:
            result = await self._answer(
                (query, topic),
                submit,
                late,
                _CallKind.SINGLE if writes else _CallKind.READ,
                may_last=not own,
            )
        except (StoreBusy, StoreFull) as error:
            if asked and (changes or query in _REMOVALS):  # else the queue is full
                self._health.refused(error, time.monotonic())
            raise
        if changes:
            self._health.changed()
        return result

    async def probe(self, patience_s: float) -> None:
        """Asks the store whether it takes changes. `problem` and `refusal` tell the answer.

        A store that answers any other call meanwhile is slow, and not silent.
        """
        started_s = time.perf_counter()
        if self._probing is None or self._probing.done():
            self._probing = self._probes.submit(lambda: self._store.probe(patience_s=patience_s))
        asked = self._probing
        answered = asyncio.wrap_future(asked)
        answered.add_done_callback(
            lambda each: each.exception()
        )  # it may fail when nobody waits any more
        await asyncio.wait([answered], timeout=patience_s + _PROBE_LATE_S)
        try:
            # The event loop may have been late itself.
            reach = asked.result() if asked.done() else Reach.NOTHING
        except StoreUnavailable as error:
            self._health.failed(error, time.monotonic())
            return
        if reach is Reach.NOTHING and self._answered_s > started_s:
            return
        self._health.probed(reach, time.monotonic(), within_s=patience_s)
        if reach is not Reach.NOTHING:
            self._answered_s = time.perf_counter()
        if reach is not Reach.CHANGES:
            self._end_waiting(reads=reach is Reach.NOTHING)

    def _end_waiting(self, *, reads: bool) -> None:
        """Ends the calls that wait in vain: changes and, if the store is silent, reads.

        A change of messages that a commit has taken waits on: its outcome would be unknown.
        """
        now_s = asyncio.get_running_loop().time()
        for time_out, (asked, kind) in self._under_way.items():
            is_taken = kind is _CallKind.GROUPED and asked.running()
            if (reads or kind is not _CallKind.READ) and not is_taken and not time_out.expired():
                time_out.reschedule(now_s)

    def _unanswered(self, waited: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store did not answer within {waited}")

    def _withdrawn(self, waited: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store did not answer within {waited}; nothing was changed. Try again"
        )

    def _unknown(self, waited: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the store did not answer within {waited}, so the change may have happened or not;"
            " ask again with the same ids"
        )

    async def _answer(
        self,
        named: tuple[str, str],
        ask: Callable[[], Future[Result]],
        late: Callable[[str], StoreUnavailable | OutcomeUnknown],
        kind: _CallKind,
        *,
        may_last: bool = False,
    ) -> Result:
        """A call that `may_last` can be late without marking the store unhealthy, if others were answered."""
        started_s = time.perf_counter()
        asked: Future[Result] | None = None
        try:
            asked = ask()
            async with asyncio.timeout(self.patience_s) as time_out:
                self._under_way[time_out] = asked, kind
                try:
                    result = await asyncio.wrap_future(asked)
                finally:
                    del self._under_way[time_out]
        except TimeoutError:
            self._metrics.query_failed(*named)
            is_withdrawn = asked is not None and asked.cancel()
            waited_s = min(time.perf_counter() - started_s, self.patience_s)
            waited = f"{round(waited_s, 1):g} s"
            error = self._withdrawn(waited) if is_withdrawn else late(waited)
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
        self._upkeep.close()
        self._probes.close()


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
