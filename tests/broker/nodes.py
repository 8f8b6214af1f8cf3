"""Nodes for tests: in this process, on a port of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronoline.broker.subscription import Subscription
from chronoline.client.aio import AsyncClient
from chronoline.node.broker_service import BrokerService
from chronoline.stores.factory import open_store


@dataclass(frozen=True, slots=True)
class Running:
    """A node that listens."""

    node: BrokerService
    address: str

    @property
    def subscriptions(self) -> list[Subscription]:
        assert self.node.parts is not None
        return self.node.parts.loaders.subscriptions

    def client(self, **given: Any) -> AsyncClient:
        return AsyncClient(self.address, **given)


@asynccontextmanager
async def running(place: Path | str, port: int = 0, **given: Any) -> AsyncIterator[Running]:
    """A node on a SQLite file in a folder, or on the store that a URL names."""
    url = f"sqlite:///{place / 'timeline.db'}" if isinstance(place, Path) else place
    with open_store(url) as store:
        async with BrokerService(store, grpc_address=("127.0.0.1", port), **given) as node:
            assert node.grpc is not None
            yield Running(node, f"127.0.0.1:{node.grpc.port}")
