"""The SDK: `Client`, the same awaited as `AsyncClient`, and `Worker`. `docs/sdk.md` is its guide.

From the outside inwards: users call `aio`, and `sync` is generated from it; `worker` calls their handlers.
`messages`, `topics`, `outcomes` and `tls` hold the values that users pass and get, `leases` the messages
that they consume. Below, `producer_stream` and `consumer_stream` are the two kinds of `stream`. `brokers`
chooses the broker of each, with a `connection` to those in use.
`requests` holds requests until they are answered, `renewal` extends leases, and `broker_time` estimates the
broker's clock.

All names are imported at their first use: gRPC is slow to import.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chronoline.client.administration import (
        BulkResult,
        MessagePage,
        MessageState,
        Selection,
    )
    from chronoline.client.aio import AsyncClient
    from chronoline.client.cluster import Cluster
    from chronoline.client.leases import AsyncLease
    from chronoline.client.messages import DeadLetter, Forecast, Headers, Message, ToSend
    from chronoline.client.outcomes import Outcome, Outcomes
    from chronoline.client.schedules import Schedule
    from chronoline.client.sync import Client, Lease
    from chronoline.client.tls import Tls
    from chronoline.client.topics import Pause, Topic, TopicSettings
    from chronoline.client.worker import Retry, Worker

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "BulkResult",
    "Client",
    "Cluster",
    "DeadLetter",
    "Forecast",
    "Headers",
    "Lease",
    "Message",
    "MessagePage",
    "MessageState",
    "Outcome",
    "Outcomes",
    "Pause",
    "Retry",
    "Schedule",
    "Selection",
    "Tls",
    "ToSend",
    "Topic",
    "TopicSettings",
    "Worker",
]

_PLACES = {
    "AsyncClient": "aio",
    "AsyncLease": "leases",
    "BulkResult": "administration",
    "Client": "sync",
    "Cluster": "cluster",
    "DeadLetter": "messages",
    "Forecast": "messages",
    "Headers": "messages",
    "Lease": "sync",
    "Message": "messages",
    "MessagePage": "administration",
    "MessageState": "administration",
    "Outcome": "outcomes",
    "Outcomes": "outcomes",
    "Pause": "topics",
    "Retry": "worker",
    "Schedule": "schedules",
    "Tls": "tls",
    "Selection": "administration",
    "ToSend": "messages",
    "Topic": "topics",
    "TopicSettings": "topics",
    "Worker": "worker",
}


# Set before gRPC is imported: the SDK reports a lost broker itself, and gRPC would write to stderr too.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{place}"), name)
