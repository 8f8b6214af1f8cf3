"""A change to one message, as a value that every layer passes on from the caller to the store.

Nothing of it is checked here. The store checks it, and makes it in one conditional write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_BATCH, batch_problem
from chronoline.core.message import Lease, LeaseTime
from chronoline.core.permissions import TRAITS, Effect, Operation, Role, changes_with

CHANGES = frozenset(TRAITS)
"""Operations that change messages one by one."""
LEASE_OPERATIONS = changes_with(Role.HOLDER)
"""Changes that the holder of a live lease makes."""
EXTENSIONS = changes_with(Effect.EXTENDS)
"""Changes after which the holder still has the lease."""
DELETIONS = changes_with(Effect.DELETES)


class Change(NamedTuple):
    """A change to one message. Fields that its operation does not use keep their defaults."""

    operation: Operation
    id: str
    name: str
    """The consumer, or the producer group, that asks for it; empty for the system."""
    version: int = 0
    """The version of the lease. An owner's change may name the version that was looked at; 0 is any."""
    to: LeaseTime = 0
    """The new time: UTC ms, or relative to the write."""
    until: int = 0
    """The end of the lease, as its holder knows it."""
    reason: str = ""
    """Why the message is buried."""
    session: str = ""
    """The session that the lease was granted to."""
    problem: str = ""
    """Why the item is no change at all. The store refuses it as `invalid`."""
    expires: int | None = None
    """A new `expires` for a message that is rescheduled; None keeps the one that it has."""

    @property
    def to_ms(self) -> int:
        """The new time, once the store has made it absolute."""
        assert isinstance(self.to, int)
        return self.to

    @property
    def lease(self) -> Lease:
        """The lease that is changed, as its holder knows it."""
        return Lease(
            id=self.id,
            consumer=self.name,
            version=self.version,
            until=self.until,
            session=self.session,
        )


def lease_changes(operation: Operation, leases: Sequence[Lease]) -> list[Change]:
    """The changes that the holders of leases ask for."""
    check_batch_size(leases)
    return [lease_change(operation, lease) for lease in leases]


def lease_change(operation: Operation, lease: Any, to: Any = 0, reason: Any = "") -> Change:
    """The change that the holder of a lease asks for."""
    if isinstance(lease, Lease):
        return Change(
            operation,
            lease.id,
            lease.consumer,
            lease.version,
            to,
            lease.until,
            reason,
            lease.session,
        )
    problem = f"must be a Lease, not {type(lease).__name__}"
    return Change(operation, lease, "", problem=problem)


def letter_changes(
    operation: Operation, ids: Sequence[str], to: LeaseTime = 0, *, producer_group: str = ""
) -> list[Change]:
    """Changes of dead letters, of one producer group or without one of any."""
    check_batch_size(ids)
    return [Change(operation, each, producer_group, to=to) for each in ids]


def pair_changes(
    operation: Operation,
    pairs: Sequence[object],
    form: str,
    change_of: Callable[[Any, Any], Change],
) -> list[Change]:
    """The changes that pairs ask for; `form` says what a pair consists of."""
    check_batch_size(pairs)
    changes: list[Change] = []
    for pair in pairs:
        match pair:
            case (first, second) if isinstance(pair, tuple):
                changes.append(change_of(first, second))
            case _:
                problem = f"must be a pair {form}, not {type(pair).__name__}"
                changes.append(Change(operation, pair, "", problem=problem))  # type: ignore[arg-type]  # no id
    return changes


def operation_of(changes: Sequence[Change]) -> Operation:
    """The operation of a batch: that of its first change. Raises `InvalidInput` if it has none."""
    named = (getattr(each, "operation", None) for each in changes)  # others are refused
    operation: Operation | None = next(filter(None, named), None)
    if operation is None or operation not in CHANGES:
        known = ", ".join(sorted(CHANGES))
        raise InvalidInput(f"a batch of changes must have one of these operations: {known}")
    return operation


def check_batch_size(items: object, most: int = MAX_BATCH) -> None:
    """Raises `InvalidInput` unless the items can be one batch."""
    problem = batch_problem(items, most)
    if problem:
        raise InvalidInput(problem)
