"""The store of a cluster: one entry holds its identity, which the first broker writes.

Brokers of one prefix share registry, members and claims, so they must share the store, too. A broker with
another store finds another identity here, and takes no part. The entry belongs to no session and is never
changed. An operator who replaced the store by another one deletes it while no broker runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.coordination.contract import Absent, Coordination, Put, View, key_of, prefix_of
from chronoline.coordination.records import Record, record_of

STORE = prefix_of("store")
_KEY = key_of("store", "identity")


@dataclass(frozen=True)
class StoreRecord(Record):
    """The store of the cluster."""

    identity: str


def is_named(view: View) -> bool:
    """Whether a view of `STORE` names the store of the cluster."""
    return _KEY in view.entries


def is_store(view: View, identity: str) -> bool:
    """Whether a view of `STORE` names this store."""
    entry = view.entries.get(_KEY)
    return entry is not None and record_of(StoreRecord, entry) == StoreRecord(identity)


async def name_store(coordination: Coordination, identity: str) -> None:
    """Names the store of the cluster, unless another broker has named it. The next view shows which it is."""
    await coordination.commit([Put(_KEY, StoreRecord(identity).encode())], when=[Absent(_KEY)])
