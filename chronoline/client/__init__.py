"""The SDK: `Client`, the same awaited as `AsyncClient`, and `Worker`. `docs/sdk.md` is its guide.

From the outside inwards: `aio` is what users call, and `sync` is made from it; `worker` calls their handlers;
`messages` is what they send and `leases` what they are handed. Below, `producing` and `consuming` are the two
kinds of `streams`, on one `connection`; `requests` is what waits there to be answered, `settling` what is
said of leases, `renewing` keeps them, and `timing` knows the broker's clock.

What is named here is imported when it is first used: gRPC is slow to import.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chronoline.client.aio import AsyncClient, Forecast, Headers, Outcomes, ToSend
    from chronoline.client.leases import AsyncLease
    from chronoline.client.sync import Client, Lease
    from chronoline.client.worker import Retry, Worker

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "Client",
    "Forecast",
    "Headers",
    "Lease",
    "Outcomes",
    "Retry",
    "ToSend",
    "Worker",
]

_PLACES = {
    "AsyncClient": "aio",
    "AsyncLease": "leases",
    "Client": "sync",
    "Forecast": "aio",
    "Headers": "aio",
    "Lease": "sync",
    "Outcomes": "aio",
    "Retry": "worker",
    "ToSend": "aio",
    "Worker": "worker",
}


# Before gRPC is imported: that a broker goes away is told by us, and not by it on stderr.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{place}"), name)
