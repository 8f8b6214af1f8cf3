"""Events as values, and their validation."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_KEY_BYTES, bytes_problem, headers_problem, time_problem
from chronoline.core.message import Header

MAX_VALUE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to append. Without a partition the key decides; without a key they are spread evenly."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    ts: int | None = None
    """When it happened, UTC ms; when it was appended if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where an event lies, once it is durable."""

    partition: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as it was appended, byte for byte."""

    topic: str
    partition: int
    sequence: int
    ts: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def check_event(event: NewEvent, partitions: int) -> None:
    """Raises `InvalidInput` with the problem."""
    if not isinstance(event, NewEvent):
        raise InvalidInput(f"an event must be a NewEvent, not {type(event).__name__}")
    problem = (
        bytes_problem("key", event.key, MAX_KEY_BYTES)
        or bytes_problem("value", event.value, MAX_VALUE_BYTES)
        or headers_problem(event.headers)
        or (None if event.ts is None else time_problem("ts", event.ts))
    )
    if problem is None and event.partition is not None:
        problem = partition_problem(event.partition, partitions)
    if problem:
        raise InvalidInput(problem)


def partition_problem(partition: object, partitions: int) -> str | None:
    """A partition is a whole number from 0 on."""
    whole = isinstance(partition, int) and not isinstance(partition, bool)
    if not whole or partition not in range(partitions):
        return f"partition {partition!r} is not one of 0 to {partitions - 1}"
    return None
