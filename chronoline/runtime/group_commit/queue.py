"""The queue of a committer: waiting calls by kind, and the selection for the next commit."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chronoline.core.errors import ChronolineError, OutcomeUnknown, StoreBusy
from chronoline.runtime.group_commit.pace import MOST_ROWS, Pace

_MOST_KINDS = 16
"""The most kinds in one commit. The cost of a kind with one item, such as a reservation, is unknown."""

Result = TypeVar("Result")
Write = Callable[[Sequence[Any], int], Sequence[Result]]
"""Makes one commit of some items at a moment; returns one result for each."""
ErrorOf = Callable[[Sequence[Any]], Exception | None]


@dataclass(slots=True, eq=False)
class QueuedCall:
    """One caller's items under way through a committer, perhaps in several commits."""

    items: Sequence[Any]
    ends: list[int]
    """The bytes of the items before each place, and at the end of all."""
    item_place: Callable[[Any], Any] = lambda _: None
    """The place of an item, for committers with a bound of places in a commit."""
    is_single: bool = False
    """The future gets the only result, and not a list of results."""
    future: Future[Any] = field(default_factory=Future)
    results: list[Any] | tuple[()] = ()
    taken: int = 0
    """The number of items that are under way to the store, or answered."""
    error_of: ErrorOf | None = None
    """Whether the results of all parts together are an error."""

    def start(self) -> bool:
        """From now on it cannot be withdrawn. False if it was: cancelled by its caller, at any moment."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def next_part(self, most: int, most_bytes: int, *, at_least: int) -> range:
        """The indexes of the items that leave next."""
        fitting = bisect_right(self.ends, self.ends[self.taken] + most_bytes) - 1
        stop = max(fitting, self.taken + at_least)
        return range(self.taken, min(stop, self.taken + most, len(self.items)))

    def places(self) -> set[Any]:
        """The places of the items that have not left yet, if they matter."""
        return set(map(self.item_place, self.items[self.taken :])) - {None}

    def left(self) -> int:
        return len(self.items) - self.taken

    def left_bytes(self) -> int:
        return self.ends[-1] - self.ends[self.taken]

    def settle(self, results: Sequence[Any], *, error_of: ErrorOf | None = None) -> None:
        """Notes the results of a part. After the last one the call is answered, or fails by `error_of`."""
        self.results = [*self.results, *results]
        self.error_of = error_of or self.error_of
        if len(self.results) < len(self.items):
            return
        error = None if self.error_of is None else self.error_of(self.results)
        if error is None:
            self.future.set_result(self.results[0] if self.is_single else self.results)
        else:
            self.future.set_exception(error)

    def fail(self, error: BaseException) -> None:
        """After a part is done, no error may say that nothing was changed. Answered items stay answered."""
        if self.future.done() or not self.start():
            return
        cause = error
        if self.results and isinstance(cause, ChronolineError):
            error = OutcomeUnknown(f"a part of the batch is done, the rest is not: {cause}")
            error.__cause__ = cause
        self.future.set_exception(error)


Part = tuple[QueuedCall, range]
"""A call, and the indexes of its items that are in a commit."""


def rows_of(parts: Sequence[Part]) -> int:
    return sum(len(part) for _, part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a queue and of its commits."""

    most_items: int
    most_bytes: int
    commit_bytes: int
    most_places: int | None
    """None if calls may be split."""


class Queue:
    """Waiting calls by kind. Guarded by the committer's condition.

    Kinds are served in the order in which they began to wait.
    """

    def __init__(self, bounds: Bounds, pace: Pace) -> None:
        self.pace = pace
        self.calls = 0
        # The number of calls that the committer waits for; fewer do not wake it.
        self.expected_calls = 0
        self._bounds = bounds
        self._waiting = 0
        self._waiting_bytes = 0
        self._kinds: dict[Any, tuple[Write[Any], deque[QueuedCall]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def is_crowded(self) -> bool:
        """Whether it is half full. The caller need not hold the condition."""
        bounds = self._bounds
        return 2 * self._waiting > bounds.most_items or 2 * self._waiting_bytes > bounds.most_bytes

    def put(self, kind: Any, write: Write[Any], call: QueuedCall) -> None:
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

    def take_all(self) -> Iterator[tuple[Write[Any], list[Part]]]:
        """As `take`, for one kind after the other, while there is room in the commit."""
        rows_left = self.pace.rows()
        for _ in range(min(len(self._kinds), _MOST_KINDS)):
            if rows_left <= 0:
                return
            write, parts = self.take(rows_left)
            rows_left -= rows_of(parts)
            yield write, parts

    def take(self, most_rows: int | None = None) -> tuple[Write[Any], list[Part]]:
        """The calls, or parts of calls, of the oldest kind that make up the next commit.

        At least one item, however large, and at most `commit_bytes` if there are more. Withdrawn calls are
        dropped; nothing is left for the commit if all of them were.
        """
        kind, (write, calls) = next(iter(self._kinds.items()))
        parts: list[Part] = []
        rows_left = self.pace.rows() if most_rows is None else most_rows
        bytes_left = self._bounds.commit_bytes
        places: set[Any] = set()
        done = 0
        for call in calls:
            if rows_left <= 0:
                break
            if call.future.cancelled():
                self._uncount(call)
                done += 1
                continue
            if self._bounds.most_places is not None:
                if not parts:
                    rows_left = max(rows_left, min(call.left(), MOST_ROWS))
                places |= call.places()
                if parts and not self._fits(call, rows_left, bytes_left, len(places)):
                    break
            part = call.next_part(rows_left, bytes_left, at_least=0 if parts else 1)
            if not part and call.left():
                break
            if not call.start():  # withdrawn a moment ago
                self._uncount(call)
                done += 1
                continue
            before_bytes = call.left_bytes()
            call.taken = part.stop
            parts.append((call, part))
            rows_left -= len(part)
            bytes_left -= before_bytes - call.left_bytes()
            self._waiting -= len(part)
            if call.left():
                break
            done += 1
        for _ in range(done):
            calls.popleft()
        self.calls -= done
        self._waiting_bytes -= self._bounds.commit_bytes - bytes_left
        del self._kinds[kind]
        if calls:
            self._kinds[kind] = (write, calls)
        return write, parts

    def _fits(self, call: QueuedCall, rows: int, size: int, places: int) -> bool:
        """Whether the whole of a call fits into the room that a commit has left."""
        most_places = self._bounds.most_places
        assert most_places is not None
        return call.left() <= rows and call.left_bytes() <= size and places <= most_places

    def is_complete(self) -> bool:
        """Whether all expected calls are here, or enough for a commit."""
        return (
            self.calls >= self.expected_calls
            or self._waiting >= self.pace.rows()
            or self._waiting_bytes >= self._bounds.commit_bytes
        )

    def drop(self, call: QueuedCall) -> None:
        """Removes the rest of a failed call, which may be in any kind's queue."""
        for kind, (_, calls) in list(self._kinds.items()):
            if call in calls:
                calls.remove(call)
                self.calls -= 1
                self._uncount(call)
                if not calls:
                    del self._kinds[kind]

    def _uncount(self, call: QueuedCall) -> None:
        """The items that have not left do not wait any more."""
        self._waiting -= call.left()
        self._waiting_bytes -= call.left_bytes()

    def clear(self) -> list[QueuedCall]:
        """Removes and returns all waiting calls: after a `take` that failed, the state is uncertain."""
        waiting = [call for _, calls in self._kinds.values() for call in calls]
        self._kinds.clear()
        self.calls = self.expected_calls = self._waiting = self._waiting_bytes = 0
        return waiting
