"""How often objects and index are asked, whoever asks."""

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
    """What was asked, in the blocks of `counting`."""

    puts: int = 0
    gets: int = 0
    transactions: int = 0
    """Of the index, committed."""
    looks: int = 0
    """At the index, without a change."""


_COUNTED = {
    "puts": (LocalObjects, "put"),
    "gets": (LocalObjects, "get"),
    "transactions": (SqliteDatabase, "writing"),
    "looks": (SqliteDatabase, "reading"),
}


@contextmanager
def counting(operations: Operations) -> Iterator[None]:
    """Adds what is asked within the block, by all threads."""
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
        next(counter)  # one step of the interpreter, so that no thread's call is missed
        return method(*arguments, **named)

    return call
