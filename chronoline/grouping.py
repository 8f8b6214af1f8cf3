"""Group commit: many callers, few commits.

A call is put in a queue and answered by a future. While a lane's thread is busy with one commit, calls
of the same kind gather, and the next commit takes them together. Nothing waits for a timer, unless a
linger is asked for.

A lane serves its queues in turn and cuts commits to about `commit_ms` of work, so that a turn comes soon.
Calls of different kinds may overtake each other; one that must come after another waits for its answer.
A full queue refuses at once with `StoreBusy`. An error reaches exactly the calls that were in that commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chronoline.clock import Clock
from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)

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


class Queue:
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


class Lane:
    """One thread that serves its queues in turn."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        commit_ms: float,
        most_items: int,
        linger_ms: float = 0,
    ) -> None:
        self._clock = clock
        self._linger_s = linger_ms / 1000
        self._commit_ms = commit_ms
        self._most_items = most_items
        self._changed = threading.Condition()
        self._queues: list[Queue] = []
        self._stopped = False
        self._ms_per_row = commit_ms / 200
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def open_queue(self) -> Queue:
        with self._changed:
            self._queues.append(Queue(self._most_items))
            return self._queues[-1]

    def submit(
        self, queue: Queue, kind: Any, write: Write[Result], items: Sequence[Any]
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
                if self._linger_s and not self._stopped:
                    self._changed.wait_for(lambda: self._stopped, self._linger_s)
                turn += 1
                ready = [queue for queue in self._queues if queue]
                queue = ready[turn % len(ready)]
                rows = int(self._commit_ms / self._ms_per_row)
                write, parts = queue.take(min(max(rows, _FEWEST_ROWS), _MOST_ROWS))
            self._commit(queue, write, parts)

    def _commit(
        self, queue: Queue, write: Write[Any], parts: list[tuple[_Call, Sequence[Any]]]
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


def only(many: Future[list[Result]]) -> Future[Result]:
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
