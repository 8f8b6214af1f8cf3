"""Storage lanes: group commit for callers with few messages each.

A call is put in a queue and answered by a future. While a lane's thread is busy with one commit, calls
of the same kind gather, and the next commit takes them together. Nothing waits for a timer.

There are two queues: deadline work (leases, acks) and bulk work (creates, owners' changes). On an
engine whose writers run beside each other each queue has a thread, so that large batches do not stand in
the way of small ones; on an engine with a single writer one thread serves both in turn, and a
commit is cut to about `commit_ms` of work so that a turn comes soon.

Calls of different kinds may overtake each other; one that must come after another waits for its answer.
A full queue refuses at once with `StoreBusy`. An error of the store reaches exactly the calls that
were in that commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chronoline.clock import Clock, SystemClock
from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from chronoline.core.message import Lease, NewMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.ranges import BucketRange
from chronoline.stores.contract import IfExists, Store

_FEWEST_ROWS = 200  # the flush itself costs the same for one row and for many
_MOST_ROWS = 5_000
_SMOOTHING = 0.2

Result = TypeVar("Result")
Write = Callable[[Sequence[Any], int], Sequence[Result]]
"""Makes one commit of some items at a moment; answers one result for each."""


@dataclass(slots=True, eq=False)
class _Call:
    """One caller's items on their way through a lane, perhaps in several commits."""

    items: Sequence[Any]
    future: Future[list[Any]] = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)
    taken: int = 0
    """How many of the items are on their way to the store, or answered."""

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

    def take(self, most: int) -> Sequence[Any]:
        part = self.items[self.taken : self.taken + most]
        self.taken += len(part)
        return part

    def left(self) -> int:
        return len(self.items) - self.taken

    def settle(self, results: Sequence[Any]) -> None:
        self.results += results
        if len(self.results) == len(self.items):
            self.future.set_result(self.results)

    def fail(self, error: BaseException) -> None:
        if self.results and isinstance(error, StoreUnavailable):
            error = OutcomeUnknown(f"a part of the batch is done, the rest is not: {error}")
        self.future.set_exception(error)


class _Queue:
    """Calls that wait, by kind. Guarded by the lane's condition.

    Kinds are served in the order in which they began to wait.
    """

    def __init__(self, most_items: int) -> None:
        self._most_items = most_items
        self._waiting = 0
        self._kinds: dict[Any, tuple[Write[Any], deque[_Call]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def put(self, kind: Any, write: Write[Any], call: _Call) -> None:
        if self._waiting + len(call.items) > self._most_items and self._waiting:
            raise StoreBusy(
                f"{self._waiting} items wait for the store already; nothing was changed. Try again"
            )
        self._waiting += len(call.items)
        self._kinds.setdefault(kind, (write, deque()))[1].append(call)

    def take(self, most_rows: int) -> tuple[Write[Any], list[tuple[_Call, Sequence[Any]]]]:
        """The calls, or parts of calls, of the oldest kind that make up the next commit."""
        kind, (write, calls) = next(iter(self._kinds.items()))
        parts: list[tuple[_Call, Sequence[Any]]] = []
        rows = 0
        while calls and rows < most_rows:
            call = calls[0]
            part = call.take(most_rows - rows)
            parts.append((call, part))
            rows += len(part)
            if not call.left():
                calls.popleft()
        del self._kinds[kind]
        if calls:
            self._kinds[kind] = (write, calls)
        self._waiting -= rows
        return write, parts

    def drop(self, call: _Call) -> None:
        """Forgets the rest of a call that failed."""
        for kind, (_, calls) in list(self._kinds.items()):
            if call in calls:
                calls.remove(call)
                self._waiting -= call.left()
                if not calls:
                    del self._kinds[kind]


class _Lane:
    """One thread that serves its queues in turn."""

    def __init__(self, name: str, clock: Clock, commit_ms: float, most_items: int) -> None:
        self._clock = clock
        self._commit_ms = commit_ms
        self._most_items = most_items
        self._changed = threading.Condition()
        self._queues: list[_Queue] = []
        self._stopped = False
        self._ms_per_row = commit_ms / 200
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def open_queue(self) -> _Queue:
        with self._changed:
            self._queues.append(_Queue(self._most_items))
            return self._queues[-1]

    def submit(
        self, queue: _Queue, kind: Any, write: Write[Result], items: Sequence[Any]
    ) -> Future[list[Result]]:
        call = _Call(items)
        with self._changed:
            if self._stopped:
                raise StoreClosed("the storage lane is closed")
            queue.put(kind, write, call)
            self._changed.notify()
        return call.future

    def close(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or any(self._queues))
                if not any(self._queues):
                    return
                turn += 1
                ready = [queue for queue in self._queues if queue]
                queue = ready[turn % len(ready)]
                rows = int(self._commit_ms / self._ms_per_row)
                write, parts = queue.take(min(max(rows, _FEWEST_ROWS), _MOST_ROWS))
            self._commit(queue, write, parts)

    def _commit(
        self, queue: _Queue, write: Write[Any], parts: list[tuple[_Call, Sequence[Any]]]
    ) -> None:
        items = [item for _, part in parts for item in part]
        started = time.perf_counter()
        try:
            results = write(items, self._clock.now_ms())
        except BaseException as error:  # it is the callers', and must not end the lane
            if len(parts) > 1 and not isinstance(error, StoreError):
                for each in parts:  # one of them is at fault, and the others should not pay for it
                    self._commit(queue, write, [each])
                return
            for call, _ in parts:
                with self._changed:
                    queue.drop(call)
                call.fail(error)
            return
        took_ms = (time.perf_counter() - started) * 1000
        self._ms_per_row += _SMOOTHING * (took_ms / max(1, len(items)) - self._ms_per_row)
        place = 0
        for call, part in parts:
            call.settle(results[place : place + len(part)])
            place += len(part)


class StorageLanes:
    """The changes of a store, answered by futures and committed in groups."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        commit_ms: float = 5.0,
        most_waiting: int = 100_000,
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        deadline = _Lane("chronoline-deadline", self._clock, commit_ms, most_waiting)
        self._lanes = [deadline]
        bulk = deadline
        if store.capabilities.concurrent_writers:
            bulk = _Lane("chronoline-bulk", self._clock, commit_ms, most_waiting)
            self._lanes.append(bulk)
        self._deadline = (deadline, deadline.open_queue())
        self._bulk = (bulk, bulk.open_queue())

    # Bulk work

    def create(
        self, topic_uid: int, messages: Sequence[NewMessage], *, if_exists: IfExists = "refuse"
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[NewMessage], now_ms: int) -> list[Outcome]:
            return self._store.create(topic_uid, items, if_exists=if_exists, now_ms=now_ms)

        return self._submit(self._bulk, ("create", topic_uid, if_exists), write, messages)

    def reschedule(
        self, topic_uid: int, moves: Sequence[tuple[str, int]], *, producer_group: str
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[tuple[str, int]], now_ms: int) -> list[Outcome]:
            return self._store.reschedule(
                topic_uid, items, producer_group=producer_group, now_ms=now_ms
            )

        return self._submit(self._bulk, ("reschedule", topic_uid, producer_group), write, moves)

    def cancel(
        self, topic_uid: int, ids: Sequence[str], *, producer_group: str
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[str], now_ms: int) -> list[Outcome]:
            return self._store.cancel(
                topic_uid, items, producer_group=producer_group, now_ms=now_ms
            )

        return self._submit(self._bulk, ("cancel", topic_uid, producer_group), write, ids)

    # Deadline work

    def ack(self, topic_uid: int, leases: Sequence[Lease]) -> Future[list[Outcome]]:
        return self._on_leases("ack", self._store.ack, topic_uid, leases)

    def unreserve(self, topic_uid: int, leases: Sequence[Lease]) -> Future[list[Outcome]]:
        return self._on_leases("unreserve", self._store.unreserve, topic_uid, leases)

    def extend(self, topic_uid: int, leases: Sequence[tuple[Lease, int]]) -> Future[list[Outcome]]:
        return self._on_leases("extend", self._store.extend, topic_uid, leases)

    def release(self, topic_uid: int, leases: Sequence[tuple[Lease, int]]) -> Future[list[Outcome]]:
        return self._on_leases("release", self._store.release, topic_uid, leases)

    def retry(self, topic_uid: int, leases: Sequence[tuple[Lease, int]]) -> Future[list[Outcome]]:
        return self._on_leases("retry", self._store.retry, topic_uid, leases)

    def reserve(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        consumer: str,
        limit: int,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
    ) -> Future[Grant]:
        """A reservation in its turn. It is not grouped: each is one statement already."""

        def write(_: Sequence[None], now_ms: int) -> list[Grant]:
            return [
                self._store.reserve(
                    topic_uid,
                    ranges,
                    consumer=consumer,
                    limit=limit,
                    lease_ms=lease_ms,
                    reserve_ahead_ms=reserve_ahead_ms,
                    now_ms=now_ms,
                )
            ]

        return _only(self._submit(self._deadline, object(), write, [None]))

    def close(self) -> None:
        """Finishes what waits, then ends the threads. May be called twice."""
        for lane in self._lanes:
            lane.close()

    def _on_leases(
        self,
        name: str,
        method: Callable[..., list[Outcome]],
        topic_uid: int,
        leases: Sequence[Any],
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[Any], now_ms: int) -> list[Outcome]:
            return method(topic_uid, items, now_ms=now_ms)

        return self._submit(self._deadline, (name, topic_uid), write, leases)

    @staticmethod
    def _submit(
        where: tuple[_Lane, _Queue], kind: Any, write: Write[Result], items: Sequence[Any]
    ) -> Future[list[Result]]:
        lane, queue = where
        if not items:
            done: Future[list[Result]] = Future()
            done.set_result([])
            return done
        return lane.submit(queue, kind, write, items)


def _only(many: Future[list[Result]]) -> Future[Result]:
    """A future of the only result of another."""
    one: Future[Result] = Future()
    one.set_running_or_notify_cancel()

    def settle(settled: Future[list[Result]]) -> None:
        error = settled.exception()
        if error is not None:
            one.set_exception(error)
        else:
            one.set_result(settled.result()[0])

    many.add_done_callback(settle)
    return one
