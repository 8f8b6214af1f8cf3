"""A change to one message, as a value that every layer passes on from the caller to the store.

Nothing of it is checked here. The store checks it, and makes it in one conditional write.
"""

from __future__ import annotations

from typing import NamedTuple

from chronoline.core.message import Lease, LeaseTime
from chronoline.core.permissions import Operation

LEASE_OPERATIONS = frozenset(
    {
        Operation.EXTEND,
        Operation.RELEASE,
        Operation.RETRY,
        Operation.BURY,
        Operation.UNRESERVE,
        Operation.ACK,
    }
)
"""Changes that the holder of a live lease makes."""


class Change(NamedTuple):
    """A change to one message. Fields that its operation does not use keep their defaults."""

    operation: Operation
    id: str
    name: str
    """The consumer, or the producer group, that asks for it."""
    version: int = 0
    """The version of the lease."""
    to: LeaseTime = 0
    """The new time: UTC ms, or relative to the write."""
    until: int = 0
    """The end of the lease, as its holder knows it."""
    reason: str = ""
    """Why the message is buried."""
    session: str = ""
    """The session that the lease was granted to."""

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


def lease_change(operation: Operation, lease: Lease, to: LeaseTime = 0, reason: str = "") -> Change:
    """The change that the holder of a lease asks for."""
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
