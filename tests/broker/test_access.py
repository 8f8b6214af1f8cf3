"""The store as the broker sees it: what is late is unknown if it was a change, else unavailable."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from chronoline.broker.access import StoreAccess
from chronoline.broker.metrics import BrokerMetrics
from chronoline.clock import SystemClock
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.stores.memory import MemoryStore


def test_what_is_late_is_unknown_only_if_it_was_a_change() -> None:
    async def play() -> None:
        answered = threading.Event()
        with (
            MemoryStore() as store,
            StoreAccess(store, SystemClock(), BrokerMetrics(), patience_s=0.05) as access,
        ):
            with pytest.raises(StoreUnavailable):
                await access.look("topics", lambda _: answered.wait(20))
            with pytest.raises(OutcomeUnknown, match="may have happened or not"):
                await access.look("drop_topic", lambda _: answered.wait(20), changes=True)
            never: Future[None] = Future()
            with pytest.raises(OutcomeUnknown):
                await access.change("ack", lambda _: never)
            answered.set()

    asyncio.run(play())
