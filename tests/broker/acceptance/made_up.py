"""A broker that lives in made-up time: its clock goes on when a test turns it, and only then."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from chronoline.broker.limits import Limits
from chronoline.client import stream as streams
from chronoline.client.aio import AsyncClient
from chronoline.client.broker_time import BrokerTime
from chronoline.core.errors import StoreUnavailable
from chronoline.node.broker_service import BrokerService
from chronoline.stores.factory import open_store
from chronoline.testing import ManualClock

_TIMEOUT_S = 60
_NO_BOUND_MS = 100 * 365 * 86_400_000
"""Nobody minds that the machine's clock, and the store's, say something else."""


class _Severed:
    """Stands before a store. Once it is `cut`, nothing gets through: the process that asks is dead."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut and name not in ("capabilities", "watch", "together"):
            raise StoreUnavailable("the process is dead")
        return getattr(self._store, name)


class MadeUpBroker:
    """A node that starts, stops and dies as often as one likes, at one address, on one store."""

    def __init__(self, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Clients of this process count by the same clock, as long as the patch lasts."""
        self._url = url
        self.clock = clock
        self._port = 0
        self._store: Any = None
        self._opened = ExitStack()
        self._node: BrokerService | None = None
        monkeypatch.setattr(
            streams, "BrokerTime", lambda: BrokerTime(lambda: clock.now_ms() * 1000)
        )

    def client(self) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self._port}", timeout=_TIMEOUT_S)

    @property
    def is_up(self) -> bool:
        return self._node is not None

    async def start(self) -> None:
        self._store = _Severed(self._opened.enter_context(open_store(self._url)))
        node = BrokerService(
            self._store, clock=self.clock, limits=Limits(clock_bound_ms=_NO_BOUND_MS)
        )
        await node.start("127.0.0.1", self._port)
        assert node.grpc is not None
        self._node, self._port = node, node.grpc.port

    async def stop(self) -> None:
        """May be called twice."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()
        self._opened.close()

    async def die(self) -> None:
        """Gives nothing back and answers nobody: as the store and the clients see it, it was killed."""
        assert self._node is not None
        assert self._node.grpc is not None
        self._store.cut = True
        await self._node.grpc.stop(0)
        await self.stop()

    def turn(self, to_ms: int) -> None:
        """The clock to a moment. Whoever sleeps until then would do so in real time, and is woken."""
        self.clock.set(max(to_ms, self.clock.now_ms()))
        if self._node is not None and self._node.parts is not None:
            loaders = self._node.parts.loaders
            for subscription in loaders.subscriptions:
                loaders.changed(subscription)
