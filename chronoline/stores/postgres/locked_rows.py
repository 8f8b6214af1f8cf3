"""Rows that other transactions hold: a batch commits without them.

A statement for many rows waits for each row that another transaction has changed and not committed, and for
an id that another has inserted. A caller's own transaction may stay open for minutes. So a statement that
waited too long is split in two, and again, until the held rows are alone: those are set aside, and
all others are done.

State: the ids that were found held, which are tried apart from the others until they are free; and the time
that statements wait. It is long enough for the commit of another batch, and short after rows were found held,
until statements pass again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from chronoline.core.errors import OutcomeUnknown, RowsLocked, StoreUnavailable
from chronoline.runtime.bounded_cache import BoundedCache

PATIENT_MS = 200
"""A statement waits this long for a row if none was found held lately."""
_SHORT_MS = 5
_SPLIT_MS = 300
"""A batch is split for this long after the first of its rows was found held; then the rest is set aside."""
_MOST_SUSPECTS = 10_000
_LEAST_LEFT_MS = 50

Item = TypeVar("Item")
Row = TypeVar("Row")


class Try(NamedTuple, Generic[Item]):
    """Some items of a batch, and the bounds of the statement that tries them."""

    items: Sequence[Item]
    lock_ms: int
    left_ms: int
    """Until the time of the whole batch is over."""


class LockedRows:
    """Runs statements for batches, and sets aside the rows that others hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._suspects = BoundedCache[str, None](_MOST_SUSPECTS)
        self._lock_ms = PATIENT_MS

    def run(
        self,
        items: Sequence[Item],
        id_of: Callable[[Item], str],
        statement: Callable[[Try[Item]], Iterable[Row]],
        *,
        within_ms: int,
    ) -> tuple[list[Row], frozenset[str]]:
        """The rows of the statement over all items that nobody holds, and the ids of the others.

        If the store fails after a part is done, the outcome is unknown.
        """
        ends = time.monotonic() + within_ms / 1000
        rows: list[Row] = []
        aside: list[str] = []
        is_whole = True
        waiting = deque(self._groups(items, id_of))
        while waiting:
            some, lock_ms = waiting.popleft()
            left_ms = int((ends - time.monotonic()) * 1000)
            ids = [id_of(item) for item in some]
            if left_ms < _LEAST_LEFT_MS:
                aside += ids
                self._suspect(ids)
                continue
            try:
                rows += statement(Try(some, min(lock_ms, left_ms), left_ms))
            except RowsLocked:
                self._lock_ms = _SHORT_MS
                ends = min(ends, time.monotonic() + _SPLIT_MS / 1000) if is_whole else ends
                is_whole = False
                if len(some) == 1:
                    aside += ids
                    self._suspect(ids)
                    continue
                middle = len(some) // 2
                waiting.appendleft((some[middle:], _SHORT_MS))
                waiting.appendleft((some[:middle], _SHORT_MS))
            except StoreUnavailable as error:
                if not rows:
                    raise
                raise OutcomeUnknown(f"a part of the batch is done: {error}") from error
            else:
                self._found_free(ids)
        return rows, frozenset(aside)

    def _groups(
        self, items: Sequence[Item], id_of: Callable[[Item], str]
    ) -> list[tuple[Sequence[Item], int]]:
        """The items that are tried together, and how long each group waits for a lock."""
        with self._lock:
            if not self._suspects:
                return [(items, self._lock_ms)] if items else []
            suspects = [item for item in items if id_of(item) in self._suspects]
            others = [item for item in items if id_of(item) not in self._suspects]
            groups = [(others, self._lock_ms), (suspects, _SHORT_MS)]
        return [group for group in groups if group[0]]

    def _suspect(self, ids: Sequence[str]) -> None:
        with self._lock:
            for each in ids:
                self._suspects.put(each, None)

    def _found_free(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._lock_ms = min(PATIENT_MS, 2 * self._lock_ms)
            if self._suspects:
                for each in ids:
                    self._suspects.pop(each)
