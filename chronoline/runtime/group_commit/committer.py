"""The thread that commits the waiting calls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from chronoline.core.errors import OutcomeUnknown, StoreClosed, StoreError
from chronoline.core.outcome import Outcome, held_error
from chronoline.runtime.clock import Clock
from chronoline.runtime.fork_guard import ForkGuard
from chronoline.runtime.group_commit.pace import Pace
from chronoline.runtime.group_commit.queue import (
    Bounds,
    Part,
    Queue,
    QueuedCall,
    Result,
    Write,
    rows_of,
)

logger = logging.getLogger(__name__)

DEFAULT_MOST_BYTES = 64 * 1024 * 1024
DEFAULT_COMMIT_BYTES = 16 * 1024 * 1024
_ANY_NUMBER = 1 << 62
_RETURN_SHARE = 0.25
_RETURN_FROM_S = 0.004  # after a shorter commit, waiting costs more than a second group

Together = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]
"""Makes one commit of several writes; returns the result of each, or the exception that it raised."""


@dataclass(slots=True)
class _Taken:
    """The part of a commit of one kind."""

    queue: Queue
    write: Write[Any]
    parts: list[Part]
    took_s: float = 0.0
    """The duration of the writing, without the commit."""

    def write_all(self, now_ms: int) -> Sequence[Any]:
        started = time.perf_counter()
        items = [item for call, part in self.parts for item in call.items[part.start : part.stop]]
        results = self.write(items, now_ms)
        self.took_s = time.perf_counter() - started
        return results


class Committer:
    """One thread that serves its queues in turn."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        commit_ms: float,
        most_items: int,
        linger_ms: float = 0,
        most_bytes: int = DEFAULT_MOST_BYTES,
        commit_bytes: int = DEFAULT_COMMIT_BYTES,
        most_places: int | None = None,
        together: Together | None = None,
    ) -> None:
        self._clock = clock
        self._together = together
        self._linger_s = linger_ms / 1000
        self._commit_ms = commit_ms
        self._bounds = Bounds(
            most_items=most_items,
            most_bytes=most_bytes,
            commit_bytes=commit_bytes,
            most_places=most_places,
        )
        self._changed = threading.Condition()
        self._queues: list[Queue] = []
        self._stopped = False
        # The queue to which the callers that were answered last may return, its number of calls then, and how
        # long that is worth waiting for. Owned by the thread.
        self._returning: tuple[Queue, int, float] | None = None
        self._fork_guard = ForkGuard("the committer")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def open_queue(self) -> Queue:
        with self._changed:
            self._queues.append(Queue(self._bounds, Pace(self._commit_ms)))
            return self._queues[-1]

    def submit(
        self,
        queue: Queue,
        kind: Any,
        write: Write[Result],
        items: Sequence[Any],
        *,
        item_bytes: Callable[[Any], int] = lambda _: 0,
        item_place: Callable[[Any], Any] = lambda _: None,
    ) -> Future[list[Result]]:
        """Queues items of one kind, and returns the future of their results.

        `item_bytes` is the size of an item; small ones may count nothing. `item_place` is its place; None if
        it takes no room in one.
        """
        call = QueuedCall(items, list(accumulate(map(item_bytes, items), initial=0)), item_place)
        self._put(queue, kind, write, call)
        return call.future

    def submit_one(self, queue: Queue, write: Callable[[int], Result]) -> Future[Result]:
        """Queues a write that is not grouped with others, and returns the future of its result."""
        call = QueuedCall((None,), [0, 0], is_single=True)
        self._put(queue, call, lambda _, now_ms: (write(now_ms),), call)
        return call.future

    def _put(self, queue: Queue, kind: Any, write: Write[Any], call: QueuedCall) -> None:
        self._fork_guard.check()  # before the lock, which a fork may have inherited locked
        with self._changed:
            if self._stopped:
                raise StoreClosed("the committer is closed")
            queue.put(kind, write, call)
            if queue.is_complete():
                self._changed.notify()

    def close(self) -> None:
        """May be called twice. In a fork it does nothing: the thread is its parent's."""
        if self._fork_guard.is_forked:
            return
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while True:
            taken: list[_Taken] = []
            is_taken = False
            try:
                with self._changed:
                    if not self._await_work():
                        return
                    turn += 1
                    self._take(turn, taken)
                is_taken = True
                if not taken:
                    continue
                if self._together is None or len(taken) == 1:
                    self._commit(taken[0])
                else:
                    self._commit_together(self._together, taken)
            except BaseException as error:  # otherwise every later call would wait forever
                self._contain(taken, error, queues=[] if is_taken else self._queues)

    def _await_work(self) -> bool:
        """False at the end, when all calls are done."""
        self._changed.wait_for(lambda: self._stopped or any(self._queues))
        if not any(self._queues):
            return False
        if self._linger_s and not self._stopped:
            self._linger()
        elif self._returning is not None:
            self._await_return(*self._returning)
        return True

    def _take(self, turn: int, taken: list[_Taken]) -> None:
        """Collects the calls of the next commit; after a failure, those that it would have had.

        None, if all of them were withdrawn.
        """
        ready = [queue for queue in self._queues if queue]
        if self._together is None:
            queue = ready[turn % len(ready)]
            write, parts = queue.take()
            if parts:
                taken.append(_Taken(queue, write, parts))
        else:
            for queue in ready:
                for write, parts in queue.take_all():
                    if parts:
                        taken.append(_Taken(queue, write, parts))

    def _linger(self) -> None:
        """Waits for more calls, until there are enough for a commit."""
        for queue in self._queues:
            queue.expected_calls = _ANY_NUMBER
        self._changed.wait_for(
            lambda: self._stopped or any(queue.is_complete() for queue in self._queues),
            self._linger_s,
        )
        for queue in self._queues:
            queue.expected_calls = 0

    def _await_return(self, queue: Queue, calls: int, by_s: float) -> None:
        """Waits until this number of calls is in the queue, unless another queue has work."""
        queue.expected_calls = calls
        self._changed.wait_for(
            lambda: (
                self._stopped
                or queue.is_complete()
                or any(each for each in self._queues if each is not queue)
            ),
            max(0, by_s - time.perf_counter()),
        )
        queue.expected_calls = 0
        self._returning = None

    def _commit(self, taken: _Taken) -> None:
        started = time.perf_counter()
        try:
            results = taken.write_all(self._clock.now_ms())
        except BaseException as error:  # it belongs to the callers, and must not end the committer
            self._failed(taken, error)
            return
        took_s = time.perf_counter() - started
        taken.queue.pace.learn(rows_of(taken.parts), took_s * 1000)
        self._settle(taken, results, took_s)

    def _commit_together(self, together: Together, taken: Sequence[_Taken]) -> None:
        started = time.perf_counter()
        try:
            now_ms = self._clock.now_ms()
            answers = together([partial(each.write_all, now_ms) for each in taken])
        except BaseException as error:
            for each in taken:
                self._fail(each, error)
            return
        took_s = time.perf_counter() - started
        flush_s = took_s - sum(each.took_s for each in taken)
        for queue in dict.fromkeys(each.queue for each in taken):
            own = [each for each in taken if each.queue is queue]
            own_s = sum(each.took_s for each in own)
            rows = sum(rows_of(each.parts) for each in own)
            queue.pace.learn(rows, (flush_s + own_s) * 1000)
        for each, answer in zip(taken, answers, strict=True):
            if isinstance(answer, Exception):
                self._failed(each, answer)
            else:
                self._settle(each, answer, took_s)

    def _failed(self, taken: _Taken, error: BaseException) -> None:
        if isinstance(error, StoreError) and error.answered is not None:
            self._settle_apart(taken, error.answered)
        elif len(taken.parts) > 1 and not isinstance(error, StoreError):
            for each in taken.parts:  # one call is at fault, and the others should not fail with it
                self._commit(_Taken(taken.queue, taken.write, [each]))
        else:
            self._fail(taken, error)

    def _settle_apart(self, taken: _Taken, answered: Sequence[Outcome]) -> None:
        """Answers each call by itself: only those with messages that other transactions hold fail.

        They fail when all of their items were tried, so that the error answers each item.
        """
        place = 0
        for call, part in taken.parts:
            call.settle(answered[place : place + len(part)], error_of=held_error)
            place += len(part)

    def _fail(self, taken: _Taken, error: BaseException) -> None:
        for call, _ in taken.parts:
            if call.left():
                with self._changed:
                    taken.queue.drop(call)
            call.fail(error)

    def _contain(
        self, taken: Sequence[_Taken], error: BaseException, *, queues: Sequence[Queue]
    ) -> None:
        """Answers the calls of the commit, and all that wait in these queues, as unknown after a defect."""
        logger.error(
            "a committer failed; it continues", exc_info=error, extra={"action": "committer_failed"}
        )
        unknown = OutcomeUnknown(
            "the committer failed, so the change may have happened or not;"
            f" ask again with the same ids: {error!r}"
        )
        unknown.__cause__ = error
        self._returning = None
        with self._changed:
            waiting = [call for queue in queues for call in queue.clear()]
        for each in taken:
            self._fail(each, unknown)
        for call in waiting:
            call.fail(unknown)

    def _settle(self, taken: _Taken, results: Sequence[Any], took_s: float) -> None:
        if len(results) != (rows := rows_of(taken.parts)):
            raise StoreError(f"{rows} items were answered by {len(results)} results")
        with self._changed:
            calls = taken.queue.calls + len(taken.parts)
        place = 0
        for call, part in taken.parts:
            call.settle(results[place : place + len(part)])
            place += len(part)
        if len(taken.parts) > 1 and took_s >= _RETURN_FROM_S:
            self._returning = taken.queue, calls, time.perf_counter() + _RETURN_SHARE * took_s
