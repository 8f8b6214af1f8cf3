"""Tools for tests of your own code: a store in memory, a clock that you move, deliveries at its time.

The pytest fixtures `chronoline_clock`, `chronoline_store` and `chronoline_broker` come with the installation.
A real PostgreSQL server is in `chronoline.testing.postgres`.
"""

from chronoline.stores.memory import MemoryStore
from chronoline.testing.clock import ManualClock
from chronoline.testing.delivery import Deliveries, advance_until_idle, deliver_due
from chronoline.testing.timeline import (
    Scheduled,
    assert_not_scheduled,
    assert_scheduled,
    scheduled,
)

__all__ = [
    "Deliveries",
    "ManualClock",
    "MemoryStore",
    "Scheduled",
    "advance_until_idle",
    "assert_not_scheduled",
    "assert_scheduled",
    "deliver_due",
    "scheduled",
]
