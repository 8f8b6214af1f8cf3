"""A node in simulated time: its clock advances only when a test sets it."""

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
"""A bound so large that the clocks of the machine and of the store do not matter."""


class _Severed:
    """A store that fails every call once it is `cut`, as if its process had died."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut and name not in ("capabilities", "watch", "together"):
            raise StoreUnavailable("the process is dead")
        return getattr(self._store, name)


class SimulatedNode:
    """A node that starts, stops and dies repeatedly, at one address and on one store."""

    def __init__(self, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """While the patch lasts, the clients of this process use the same clock."""
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
            self._store,
            grpc_address=("127.0.0.1", self._port),
            clock=self.clock,
            limits=Limits(clock_bound_ms=_NO_BOUND_MS),
        )
        await node.start()
        assert node.grpc is not None
        self._node, self._port = node, node.grpc.port

    async def stop(self) -> None:
        """Stop the node; does nothing when it is stopped."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()
        self._opened.close()

    async def die(self) -> None:
        """Stop without returning leases or answering requests, like a killed process."""
        assert self._node is not None
        assert self._node.grpc is not None
        self._store.cut = True
        self._node.grpc.grace_s = 0
        await self._node.grpc.stop()
        await self.stop()

    def turn(self, to_ms: int) -> None:
        """Set the clock, and wake the loaders, which sleep in real time."""
        self.clock.set(max(to_ms, self.clock.now_ms()))
        if self._node is not None and self._node.parts is not None:
            self._node.parts.loaders.moved()
