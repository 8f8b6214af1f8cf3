"""Counts of the operations on objects and index, by all callers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest import mock

from chronoline.databases.sqlite import SqliteDatabase
from chronoline.log.objects.local import LocalObjects


@dataclass(slots=True)
class Operations:
    """The operations within the blocks of `count_operations`."""

    puts: int = 0
    gets: int = 0
    transactions: int = 0
    """Committed transactions of the index."""
    looks: int = 0
    """Read-only transactions of the index."""


_COUNTED = {
    "puts": (LocalObjects, "put"),
    "gets": (LocalObjects, "get"),
    "transactions": (SqliteDatabase, "writing"),
    "looks": (SqliteDatabase, "reading"),
}


@contextmanager
def count_operations(operations: Operations) -> Iterator[None]:
    """Adds the operations of all threads within the block."""
    counters = {name: count() for name in _COUNTED}
    with ExitStack() as stack:
        for name, (owner, method) in _COUNTED.items():
            counted = _counted(getattr(owner, method), counters[name])
            stack.enter_context(mock.patch.object(owner, method, counted))
        yield
    for name, counter in counters.items():
        setattr(operations, name, getattr(operations, name) + next(counter))


def _counted(method: Callable[..., Any], counter: count[int]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        next(counter)  # atomic: no thread's call is missed
        return method(*arguments, **named)

    return call
