"""The timeline as a library: stores and firing lanes without a broker, their values and their errors.

`open_store(url)` opens one. Times are whole milliseconds since 1970, UTC; `docs/library.md` is the guide.
"""

from chronoline.core.change import Change, lease_change
from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    MissingExtra,
    OutcomeUnknown,
    Refused,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
)
from chronoline.core.message import (
    After,
    DeadLetter,
    Lease,
    LeasedMessage,
    Message,
    NewMessage,
)
from chronoline.core.outcome import Grant, Outcome, Refusal, raise_for_refused
from chronoline.core.permissions import Consumer, Operation, Producer, System
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.firing_lane import FiringLane
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.message_ids import new_id, new_message
from chronoline.runtime.timestamps import to_ms
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

__all__ = [
    "After",
    "BucketRange",
    "Change",
    "ChronolineError",
    "Clock",
    "Consumer",
    "DeadLetter",
    "FiringLane",
    "Grant",
    "InvalidInput",
    "Lease",
    "LeasedMessage",
    "Message",
    "MissingExtra",
    "NewMessage",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "Producer",
    "Refusal",
    "Refused",
    "SchemaTooNew",
    "StorageThreads",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "System",
    "SystemClock",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TopicSettings",
    "lease_change",
    "new_id",
    "new_message",
    "open_store",
    "raise_for_refused",
    "to_ms",
]
