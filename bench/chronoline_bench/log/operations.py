"""Operations on objects and index: their counts, by all callers, and their rows in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest import mock

from chronoline.databases.sqlite import SqliteDatabase
from chronoline.log.objects.local import LocalObjects
from chronoline_bench.session import Session

REFERENCE = "one object per event"
_MILLION = 1_000_000


@dataclass(slots=True)
class Operations:
    """The operations within the blocks of `count_operations`, and the events that they concern."""

    puts: int = 0
    gets: int = 0
    transactions: int = 0
    """Committed transactions of the index."""
    looks: int = 0
    """Read-only transactions of the index."""
    events: int = 0

    def per_million(self, kind: str) -> float:
        """Returns the operations of a kind for a million events."""
        count: int = getattr(self, kind)
        return count * _MILLION / max(1, self.events)


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


def report_operations(
    session: Session,
    events: str,
    metrics: Mapping[str, str],
    kinds: Mapping[str, str],
    operations: Mapping[str, Operations],
) -> None:
    """Adds rows for a million `events`: one for each kind of operation, by its title, and each metric."""
    for title, kind in kinds.items():
        for name, metric in metrics.items():
            session.add(
                f"{title} for a million {events}",
                metric,
                operations[name].per_million(kind),
                "per million events",
                beside=(REFERENCE, operations["reference"].per_million(kind)),
            )
