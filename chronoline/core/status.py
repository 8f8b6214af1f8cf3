"""The status of a message at a moment."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Protocol


class Status(StrEnum):
    """The three statuses of a message that is on its timeline."""

    AVAILABLE = "available"
    PROCESSING = "processing"
    WAITING = "waiting"


class Life(IntEnum):
    """The kind of a stored row, which says what its `ts` means."""

    LIVE = 0
    """A message on its timeline, at `ts`."""
    GONE = 1
    """The mark of a deleted message: the id is taken until `ts`. It names the hand that deleted it."""
    DEAD = 2
    """A dead letter since `ts`."""


class State(StrEnum):
    """The states that an operation can meet.

    RELEASED reads like WAITING, and like AVAILABLE once it is due again: the rows do not differ.
    """

    NEW = "new"
    """The id is free: nothing is there yet, or no longer."""
    WAITING = "waiting"
    AVAILABLE = "available"
    PROCESSING = "processing"
    LOST = "lost"
    """Available again because its lease lapsed."""
    RELEASED = "released"
    """Given back into the future by a consumer."""
    DELETED = "deleted"
    """Acked or cancelled, and its id is still taken."""
    DEAD = "dead"


class Row(Protocol):
    """The columns of a stored row that the rules need."""

    @property
    def life(self) -> Life: ...
    @property
    def ts(self) -> int: ...
    @property
    def producer_group(self) -> str: ...
    @property
    def lock_consumer(self) -> str | None: ...
    @property
    def version(self) -> int: ...


def status_of(ts: int, locked: bool, now_ms: int) -> Status:
    """The status rule, in its order: at `ts == now` a message is available and a lease is over."""
    if ts <= now_ms:
        return Status.AVAILABLE
    return Status.PROCESSING if locked else Status.WAITING


def state_of(row: Row | None, now_ms: int) -> State:
    """The state that an operation meets at this moment."""
    if row is None or (row.life is Life.GONE and row.ts <= now_ms):
        return State.NEW
    if row.life is Life.GONE:
        return State.DELETED
    if row.life is Life.DEAD:
        return State.DEAD
    locked = row.lock_consumer is not None
    status = status_of(row.ts, locked, now_ms)
    if status is Status.AVAILABLE and locked:
        return State.LOST
    return State(status.value)
