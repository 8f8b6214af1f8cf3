"""Nodes that speak HTTP, for tests: in this process, on ports of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from chronoline.broker.subscription import Subscription
from chronoline.client.aio import AsyncClient
from chronoline.node.broker_service import BrokerService
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Served:
    """A node with an HTTP client."""

    node: BrokerService
    http: httpx.AsyncClient

    @property
    def url(self) -> str:
        return str(self.http.base_url)

    @property
    def port(self) -> int:
        assert self.node.http is not None
        return self.node.http.port

    @property
    def subscriptions(self) -> list[Subscription]:
        assert self.node.parts is not None
        return self.node.parts.loaders.subscriptions

    @property
    def address(self) -> str:
        """The gRPC address."""
        assert self.node.grpc is not None
        return f"127.0.0.1:{self.node.grpc.port}"

    def client(self) -> AsyncClient:
        """A client of the SDK, over gRPC."""
        return AsyncClient(self.address)

    async def create_topic(self, name: str = "t", **settings: Any) -> None:
        made = await self.http.post("/v1/topics", json={"name": name, "settings": settings})
        assert made.status_code == 201, made.text

    async def put(self, message_id: str, topic: str = "t", **fields: Any) -> dict[str, Any]:
        put = await self.http.put(f"/v1/topics/{topic}/messages/{message_id}", json=fields)
        assert put.status_code == 201, put.text
        return dict(put.json())

    async def receive(self, topic: str = "t", **fields: Any) -> dict[str, Any]:
        received = await self.http.post(f"/v1/topics/{topic}/receive", json=fields)
        assert received.status_code == 200, received.text
        return dict(received.json())

    async def settle(self, what: str, topic: str = "t", **fields: Any) -> list[dict[str, Any]]:
        settled = await self.http.post(f"/v1/topics/{topic}/{what}", json=fields)
        assert settled.status_code == 200, settled.text
        return list(settled.json()["outcomes"])


@asynccontextmanager
async def serving(place: Path | Store, **given: Any) -> AsyncIterator[Served]:
    """A node on a SQLite file in a folder, or on a store."""
    if isinstance(place, Path):
        with open_store(f"sqlite:///{place / 'timeline.db'}") as store:
            async with serving(store, **given) as served:
                yield served
        return
    at = ("127.0.0.1", 0)
    async with BrokerService(place, grpc_address=at, http_address=at, **given) as node:
        assert node.http is not None
        url = f"http://127.0.0.1:{node.http.port}"
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as http:
            yield Served(node, http)


@contextmanager
def serving_beside(place: Path) -> Iterator[str]:
    """The URL of a node in a thread, for synchronous callers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    exits = AsyncExitStack()
    try:
        entering = exits.enter_async_context(serving(place))
        yield asyncio.run_coroutine_threadsafe(entering, loop).result(TIMEOUT_S).url
    finally:
        asyncio.run_coroutine_threadsafe(exits.aclose(), loop).result(TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
