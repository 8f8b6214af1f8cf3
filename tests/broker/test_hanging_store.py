"""A hanging store: the node stops without it, and its event loop continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partialmethod
from typing import Any

import pytest

from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.ranges import BucketRange
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.node.broker_service import BrokerService
from chronoline.stores.contract import Counts, IfExists
from chronoline.stores.memory import MemoryStore
from tests.deadline import until


class _HangingStore(MemoryStore):
    """Creates and counts hang until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.went_on = threading.Event()

    def _hang(self) -> None:
        self.entered.set()
        self.let_go.wait(60)
        self.went_on.set()

    def create(
        self,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        self._hang()
        return super().create(topic_uid, messages, if_exists=if_exists, now_ms=now_ms)

    def count(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, start: int, end: int, now_ms: int
    ) -> Counts:
        self._hang()
        return super().count(topic_uid, ranges, start=start, end=end, now_ms=now_ms)


@asynccontextmanager
async def _hanging(
    asked: str, *, patience_s: float
) -> AsyncIterator[tuple[_HangingStore, BrokerService]]:
    """A node with a call under way to its hanging store."""
    with _HangingStore() as store:
        topic = store.create_topic("jobs", now_ms=0)
        node = BrokerService(store, grpc_address=("127.0.0.1", 0), patience_s=patience_s)
        await node.start()
        assert node.parts is not None
        carrier = node.parts.carrier
        asking: asyncio.Future[Any] = asyncio.ensure_future(
            carrier.create(topic.uid, [NewMessage(id="a", due=0)])
            if asked == "create"
            else carrier.count(topic.uid, start=0, end=1)
        )
        assert await asyncio.to_thread(store.entered.wait, 60)
        try:
            yield store, node
        finally:
            store.let_go.set()
            await asyncio.gather(asking, return_exceptions=True)
            assert await asyncio.to_thread(store.went_on.wait, 60)


@pytest.mark.parametrize("asked", ["create", "count"])
def test_node_stops_while_its_store_hangs(asked: str) -> None:
    async def play() -> None:
        async with _hanging(asked, patience_s=0.2) as (store, node):
            await node.stop()
            assert not store.went_on.is_set()

    asyncio.run(play())


@pytest.mark.parametrize("asked", ["create", "count"])
def test_event_loop_runs_while_stop_waits_for_store(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()

    def close(threads: StorageThreads, really: Callable[[StorageThreads], None]) -> None:
        closing.set()
        really(threads)

    monkeypatch.setattr(StorageThreads, "close", partialmethod(close, StorageThreads.close))

    async def play() -> None:
        async with _hanging(asked, patience_s=60) as (store, node):
            stopping = asyncio.ensure_future(node.stop())
            await until(closing.is_set)
            assert not store.went_on.is_set()
            store.let_go.set()
            await stopping
            assert store.went_on.is_set()

    asyncio.run(play())
