"""Put a message on a timeline, get it back at its millisecond.

The SDK of the broker (`Client` and what belongs to it) is imported when it is first used: gRPC is slow to.
"""

from typing import TYPE_CHECKING, Any

from chronoline.core.errors import (
    AlreadySubscribed,
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    ConsumerReplaced,
    InvalidInput,
    MissingExtra,
    NotSubscribed,
    OutcomeUnknown,
    Refused,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooMuch,
    TopicExists,
    TopicNotFound,
    TopicPiped,
    Unauthenticated,
)
from chronoline.core.message import DeadLetter, Lease, LeasedMessage, Message, NewMessage
from chronoline.core.outcome import Grant, Outcome, Refusal, raise_for_refused
from chronoline.core.permissions import Consumer, Producer, System
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings
from chronoline.core.version import VERSION
from chronoline.runtime.clock import Clock, SystemClock, to_ms
from chronoline.runtime.message_ids import new_id, new_message
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

if TYPE_CHECKING:
    from chronoline.client import AsyncClient, Client, Retry, ToSend, Worker

__version__ = VERSION

__all__ = [
    "AlreadySubscribed",
    "AsyncClient",
    "BrokerUnavailable",
    "BucketRange",
    "ChronolineError",
    "Client",
    "ClientClosed",
    "Clock",
    "Consumer",
    "ConsumerReplaced",
    "DeadLetter",
    "Grant",
    "InvalidInput",
    "Lease",
    "LeasedMessage",
    "Message",
    "MissingExtra",
    "NewMessage",
    "NotSubscribed",
    "Outcome",
    "OutcomeUnknown",
    "Producer",
    "Refusal",
    "Refused",
    "Retry",
    "SchemaTooNew",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "System",
    "SystemClock",
    "ToSend",
    "TooMuch",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TopicPiped",
    "TopicSettings",
    "Unauthenticated",
    "Worker",
    "new_id",
    "new_message",
    "open_store",
    "raise_for_refused",
    "to_ms",
]

_OF_THE_CLIENT = frozenset({"AsyncClient", "Client", "Retry", "ToSend", "Worker"})


def __getattr__(name: str) -> Any:
    if name in _OF_THE_CLIENT:
        from chronoline import client  # noqa: PLC0415 - see above

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
