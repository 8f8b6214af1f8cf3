"""A store with one method that a test can block, and a node on that store."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chronoline.node.broker_service import BrokerService
from chronoline.stores.factory import open_store
from tests.broker.nodes import Running
from tests.delivery.stores import call_name

_PATIENCE_S = 60
_ALL = 10_000


class Permits(threading.Event):
    """A gate that lets some calls through, one for each permit; `set` opens it."""

    def __init__(self) -> None:
        super().__init__()
        self._permits = threading.Semaphore(0)

    def give(self, number: int) -> None:
        self._permits.release(number)

    def set(self) -> None:
        super().set()
        self.give(_ALL)

    def wait(self, timeout: float | None = None) -> bool:
        return self._permits.acquire(timeout=timeout)


class GatedStore:
    """A store in which calls of one method wait while the gate is shut."""

    def __init__(self, store: Any, method: str) -> None:
        self._store = store
        self._method = method
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._wait_and(name, found) if name in (self._method, "apply") else found

    def _wait_and(self, name: str, call: Any) -> Any:
        def waiting(*args: Any, **given: Any) -> Any:
            if call_name(name, args) != self._method:
                return call(*args, **given)
            self.waiting += 1
            self.gate.wait(_PATIENCE_S)
            self.waiting -= 1
            return call(*args, **given)

        return waiting


@asynccontextmanager
async def running_gated(
    folder: Path, method: str, **given: Any
) -> AsyncIterator[tuple[Running, GatedStore]]:
    """A node on a SQLite file in a folder; one method of its store has a gate."""
    with open_store(f"sqlite:///{folder / 'timeline.db'}") as store:
        gated: Any = GatedStore(store, method)
        async with BrokerService(gated, grpc_address=("127.0.0.1", 0), **given) as node:
            assert node.grpc is not None
            try:
                yield Running(node, f"127.0.0.1:{node.grpc.port}"), gated
            finally:
                gated.gate.set()
