"""Put a message on a timeline, get it back at its millisecond.

The SDK of a broker. `chronoline.client` has its other types, `chronoline.store` the timeline as a library.
`Client` and its companions are imported at their first use: gRPC is slow to import.
"""

from typing import TYPE_CHECKING, Any

from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    ConsumerReplaced,
    InvalidInput,
    MissingExtra,
    NodeBusy,
    OutcomeUnknown,
    Refused,
    ScheduleExists,
    ScheduleNotFound,
    StoreUnavailable,
    TooMuch,
    TopicExists,
    TopicNotFound,
    TopicNotReady,
    TopicPiped,
    Unauthenticated,
)
from chronoline.core.version import VERSION

if TYPE_CHECKING:
    from chronoline.client import AsyncClient, Client, Lease, Message, Retry, ToSend, Worker

__version__ = VERSION

__all__ = [
    "AsyncClient",
    "BrokerUnavailable",
    "ChronolineError",
    "Client",
    "ClientClosed",
    "ConsumerReplaced",
    "InvalidInput",
    "Lease",
    "Message",
    "MissingExtra",
    "NodeBusy",
    "OutcomeUnknown",
    "Refused",
    "Retry",
    "ScheduleExists",
    "ScheduleNotFound",
    "StoreUnavailable",
    "ToSend",
    "TooMuch",
    "TopicExists",
    "TopicNotFound",
    "TopicNotReady",
    "TopicPiped",
    "Unauthenticated",
    "Worker",
]

_OF_THE_CLIENT = frozenset(
    {"AsyncClient", "Client", "Lease", "Message", "Retry", "ToSend", "Worker"}
)


def __getattr__(name: str) -> Any:
    if name in _OF_THE_CLIENT:
        from chronoline import client  # noqa: PLC0415 - see above

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
