"""The timeline as a library: stores without a broker, their values and their errors.

`open_store(url)` opens one. Times are whole milliseconds since 1970, UTC; `docs/library.md` is the guide.
"""

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
from chronoline.core.permissions import Consumer, Producer, System
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.message_ids import new_id, new_message
from chronoline.runtime.timestamps import to_ms
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

__all__ = [
    "After",
    "BucketRange",
    "ChronolineError",
    "Clock",
    "Consumer",
    "DeadLetter",
    "Grant",
    "InvalidInput",
    "Lease",
    "LeasedMessage",
    "Message",
    "MissingExtra",
    "NewMessage",
    "Outcome",
    "OutcomeUnknown",
    "Producer",
    "Refusal",
    "Refused",
    "SchemaTooNew",
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
    "new_id",
    "new_message",
    "open_store",
    "raise_for_refused",
    "to_ms",
]
