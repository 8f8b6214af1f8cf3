"""Group commit: many callers, few commits.

A call is put in a queue and answered by a future. While a lane's thread is busy with one commit, calls
of the same kind gather, and the next commit takes them together. Nothing waits for a timer, unless a
linger is asked for, or several calls were answered together: who waits for an answer comes back at once, and
after a slow commit the next one waits for them up to a quarter of the time that the last one took. Else they
would part into two groups that take turns.

A lane serves its queues in turn and cuts commits to about `commit_ms` of work, so that a turn comes soon.
Calls of different kinds may overtake each other; one that must come after another waits for its answer.
An error reaches exactly the calls that were in that commit.

A lane with `most_places` keeps calls whole: one that fits into a commit by itself, by `MOST_ROWS`, bytes and
the places that its items go to, is never cut, and waits for the next commit where it does not fit into this
one. What cannot fit is committed alone, in parts.

A lane with a `together` makes one commit of everything that waits, whatever its kind, as far as the rows of
its queues' commits allow. Then an error reaches only the calls of the kind that raised it, unless the commit
itself fails.

A queue is full at `most_items`, or at `most_bytes` by what the callers say that an item weighs. Then it
refuses at once with `StoreBusy`; an empty one takes a call of any size, since its caller holds it anyway. A
commit is cut to `commit_bytes` too, and that much is on its way besides what waits.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from chronoline.clock import Clock
from chronoline.core.errors import (
    ChronolineError,
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreError,
)

DEFAULT_MOST_BYTES = 64 * 1024 * 1024
DEFAULT_COMMIT_BYTES = 16 * 1024 * 1024
FEWEST_ROWS = 200
"""No commit is cut to fewer, whatever a row costs, except to half now and then to learn what it does."""
MOST_ROWS = 5_000
_FEW_ROWS = 10  # commits that differ by less say nothing of what a row costs
_HALVED_EVERY = 10
_SMOOTHING = 0.1
_ANY_NUMBER = 1 << 62
_MOST_KINDS = 16
"""In one commit. What a kind of one item costs, such as a reservation, nobody knows."""
_RETURN_SHARE = 0.25
_RETURN_FROM_S = 0.004  # after a shorter commit the waiting costs more than a second group

Result = TypeVar("Result")
Write = Callable[[Sequence[Any], int], Sequence[Result]]
"""Makes one commit of some items at a moment; answers one result for each."""
Together = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]
"""Makes one commit of several writes; answers what each returned, or the exception that it raised."""


@dataclass(slots=True, eq=False)
class _Call:
    """One caller's items on their way through a lane, perhaps in several commits."""

    items: Sequence[Any]
    ends: list[int]
    """How many bytes the items before each place have, and at last all of them."""
    item_place: Callable[[Any], Any] = lambda _: None
    """Where an item goes, for lanes whose commits go to so many places."""
    future: Future[list[Any]] = field(default_factory=Future)
    results: list[Any] | tuple[()] = ()
    taken: int = 0
    """How many of the items are on their way to the store, or answered."""

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

    def take(self, most: int, most_bytes: int, *, at_least: int) -> range:
        """The places of the items that go on their way next."""
        fitting = bisect_right(self.ends, self.ends[self.taken] + most_bytes) - 1
        stop = max(fitting, self.taken + at_least)
        part = range(self.taken, min(stop, self.taken + most, len(self.items)))
        self.taken = part.stop
        return part

    def places(self) -> set[Any]:
        """Where the items go that are not on their way yet, as far as that matters."""
        return set(map(self.item_place, self.items[self.taken :])) - {None}

    def left(self) -> int:
        return len(self.items) - self.taken

    def left_bytes(self) -> int:
        return self.ends[-1] - self.ends[self.taken]

    def settle(self, results: Sequence[Any]) -> None:
        self.results = [*self.results, *results]
        if len(self.results) == len(self.items):
            self.future.set_result(self.results)

    def fail(self, error: BaseException) -> None:
        """After a part is done, no error may say that nothing was changed."""
        cause = error
        if self.results and isinstance(cause, ChronolineError):
            error = OutcomeUnknown(f"a part of the batch is done, the rest is not: {cause}")
            error.__cause__ = cause
        self.future.set_exception(error)


_Part = tuple[_Call, range]
"""A call, and the places of its items that are in a commit."""


class Pace:
    """How many rows a commit should have, by what the last ones cost.

    A line through the last commits, the latest weighing most, tells what the flush costs and what a row
    costs beyond it. The rows may take `commit_ms`, or as long as the flush if that is more: a slow flush is
    shared by more rows. In a rush all commits have one size, which tells neither, so now and then one is cut
    to half.
    """

    def __init__(self, commit_ms: float) -> None:
        self._commit_ms = commit_ms
        self._row_ms = commit_ms / FEWEST_ROWS
        self._learnt = 0
        # Weighted means of what was seen, and how it varied around them.
        self._rows = self._took_ms = 0.0
        self._rows_variance = self._covariance = 0.0

    def rows(self) -> int:
        flush_ms = self._took_ms - self._row_ms * self._rows
        most_ms = max(self._commit_ms, flush_ms)
        if most_ms >= MOST_ROWS * self._row_ms:
            rows = MOST_ROWS
        else:
            rows = max(FEWEST_ROWS, int(most_ms / self._row_ms))
        return rows // 2 if self._learnt % _HALVED_EVERY == _HALVED_EVERY - 1 else rows

    def learn(self, rows: int, took_ms: float) -> None:
        weight = _SMOOTHING if self._learnt else 1.0
        self._learnt += 1
        more_rows, longer_ms = rows - self._rows, took_ms - self._took_ms
        self._rows += weight * more_rows
        self._took_ms += weight * longer_ms
        kept = 1 - weight
        self._rows_variance = kept * (self._rows_variance + weight * more_rows**2)
        self._covariance = kept * (self._covariance + weight * more_rows * longer_ms)
        if self._rows_variance >= _FEW_ROWS**2:
            self._row_ms = max(0.0, self._covariance / self._rows_variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much may wait in a queue, and how much a commit takes."""

    most_items: int
    most_bytes: int
    commit_bytes: int
    most_places: int | None
    """None if calls may be cut."""


class Queue:
    """Calls that wait, by kind. Guarded by the lane's condition.

    Kinds are served in the order in which they began to wait.
    """

    def __init__(self, bounds: Bounds, pace: Pace) -> None:
        self.pace = pace
        self.calls = 0
        # While the lane waits for so many calls, fewer are no news.
        self.expected_calls = 0
        self._bounds = bounds
        self._waiting = 0
        self._waiting_bytes = 0
        self._kinds: dict[Any, tuple[Write[Any], deque[_Call]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def put(self, kind: Any, write: Write[Any], call: _Call) -> None:
        items = self._waiting + call.left()
        size = self._waiting_bytes + call.left_bytes()
        bounds = self._bounds
        if self._waiting and (items > bounds.most_items or size > bounds.most_bytes):
            raise StoreBusy(
                f"{self._waiting} items of {self._waiting_bytes} bytes wait for the store already;"
                " nothing was changed. Try again"
            )
        self._kinds.setdefault(kind, (write, deque()))[1].append(call)
        self._waiting, self._waiting_bytes = items, size
        self.calls += 1

    def take_all(self) -> Iterator[tuple[Write[Any], list[_Part]]]:
        """As `take`, of one kind after the other, as long as there is room in the commit."""
        rows_left = self.pace.rows()
        for _ in range(min(len(self._kinds), _MOST_KINDS)):
            if rows_left <= 0:
                return
            write, parts = self.take(rows_left)
            rows_left -= _rows(parts)
            yield write, parts

    def take(self, most_rows: int | None = None) -> tuple[Write[Any], list[_Part]]:
        """The calls, or parts of calls, of the oldest kind that make up the next commit.

        At least one item, however large, and at most `commit_bytes` if there are more.
        """
        kind, (write, calls) = next(iter(self._kinds.items()))
        parts: list[_Part] = []
        rows_left = self.pace.rows() if most_rows is None else most_rows
        bytes_left = self._bounds.commit_bytes
        places: set[Any] = set()
        while calls and rows_left > 0:
            call = calls[0]
            if self._bounds.most_places is not None:
                if not parts:
                    rows_left = max(rows_left, min(call.left(), MOST_ROWS))
                places |= call.places()
                if parts and not self._fits(call, rows_left, bytes_left, len(places)):
                    break
            before_bytes = call.left_bytes()
            part = call.take(rows_left, bytes_left, at_least=0 if parts else 1)
            if part or not call.left():
                parts.append((call, part))
            rows_left -= len(part)
            bytes_left -= before_bytes - call.left_bytes()
            self._waiting -= len(part)
            if call.left():
                break
            calls.popleft()
            self.calls -= 1
        self._waiting_bytes -= self._bounds.commit_bytes - bytes_left
        del self._kinds[kind]
        if calls:
            self._kinds[kind] = (write, calls)
        return write, parts

    def _fits(self, call: _Call, rows: int, size: int, places: int) -> bool:
        """Whether the whole of a call joins others in a commit that has so much room."""
        most_places = self._bounds.most_places
        assert most_places is not None
        return call.left() <= rows and call.left_bytes() <= size and places <= most_places

    def is_complete(self) -> bool:
        """All who are expected are here, or enough for a commit."""
        return (
            self.calls >= self.expected_calls
            or self._waiting >= self.pace.rows()
            or self._waiting_bytes >= self._bounds.commit_bytes
        )

    def drop(self, call: _Call) -> None:
        """Forgets the rest of a call that failed; it is looked for among all that wait."""
        for kind, (_, calls) in list(self._kinds.items()):
            if call in calls:
                calls.remove(call)
                self.calls -= 1
                self._waiting -= call.left()
                self._waiting_bytes -= call.left_bytes()
                if not calls:
                    del self._kinds[kind]


@dataclass(slots=True)
class _Taken:
    """What a commit takes of one kind."""

    queue: Queue
    write: Write[Any]
    parts: list[_Part]
    took_s: float = 0.0
    """How long the writing took, without the commit."""

    @property
    def rows(self) -> int:
        return _rows(self.parts)

    def write_all(self, now_ms: int) -> Sequence[Any]:
        started = time.perf_counter()
        items = [item for call, part in self.parts for item in call.items[part.start : part.stop]]
        results = self.write(items, now_ms)
        self.took_s = time.perf_counter() - started
        return results


def _rows(parts: Sequence[_Part]) -> int:
    return sum(len(part) for _, part in parts)


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
        # In which queue those who were answered last may be back, how many calls it has then, and until when
        # that is worth waiting for. The thread's own.
        self._returning: tuple[Queue, int, float] | None = None
        self._process = os.getpid()
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
        """`item_bytes` says what an item weighs; what is small may weigh nothing. `item_place` says where it
        goes; None if it takes no room there.
        """
        if self._process != os.getpid():  # before the lock, which a fork may have inherited taken
            raise StoreError("the lane was opened before a fork; open it again in this process")
        call = _Call(items, list(accumulate(map(item_bytes, items), initial=0)), item_place)
        with self._changed:
            if self._stopped:
                raise StoreClosed("the storage lane is closed")
            queue.put(kind, write, call)
            if queue.is_complete():
                self._changed.notify()
        return call.future

    def close(self) -> None:
        """May be called twice. In a fork it does nothing: the thread is its parent's."""
        if self._process != os.getpid():
            return
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
                    self._linger()
                elif self._returning is not None:
                    self._await_return(*self._returning)
                turn += 1
                ready = [queue for queue in self._queues if queue]
                queue = ready[turn % len(ready)]
                if self._together is None:
                    taken = [_Taken(queue, *queue.take())]
                else:
                    taken = [_Taken(each, *group) for each in ready for group in each.take_all()]
            if self._together is None or len(taken) == 1:
                self._commit(taken[0])
            else:
                self._commit_together(self._together, taken)

    def _linger(self) -> None:
        """Waits for company, until there is enough for a commit."""
        for queue in self._queues:
            queue.expected_calls = _ANY_NUMBER
        self._changed.wait_for(
            lambda: self._stopped or any(queue.is_complete() for queue in self._queues),
            self._linger_s,
        )
        for queue in self._queues:
            queue.expected_calls = 0

    def _await_return(self, queue: Queue, calls: int, by_s: float) -> None:
        """Waits until so many calls are in the queue, unless another one has work."""
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
        except BaseException as error:  # it is the callers', and must not end the lane
            self._failed(taken, error)
            return
        took_s = time.perf_counter() - started
        taken.queue.pace.learn(taken.rows, took_s * 1000)
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
            queue.pace.learn(sum(each.rows for each in own), (flush_s + own_s) * 1000)
        for each, answer in zip(taken, answers, strict=True):
            if isinstance(answer, Exception):
                self._failed(each, answer)
            else:
                self._settle(each, answer, took_s)

    def _failed(self, taken: _Taken, error: BaseException) -> None:
        if len(taken.parts) > 1 and not isinstance(error, StoreError):
            for (
                each
            ) in taken.parts:  # one of them is at fault, and the others should not pay for it
                self._commit(_Taken(taken.queue, taken.write, [each]))
        else:
            self._fail(taken, error)

    def _fail(self, taken: _Taken, error: BaseException) -> None:
        for call, _ in taken.parts:
            if call.left():
                with self._changed:
                    taken.queue.drop(call)
            call.fail(error)

    def _settle(self, taken: _Taken, results: Sequence[Any], took_s: float) -> None:
        with self._changed:
            calls = taken.queue.calls + len(taken.parts)
        place = 0
        for call, part in taken.parts:
            call.settle(results[place : place + len(part)])
            place += len(part)
        if len(taken.parts) > 1 and took_s >= _RETURN_FROM_S:
            self._returning = taken.queue, calls, time.perf_counter() + _RETURN_SHARE * took_s


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
