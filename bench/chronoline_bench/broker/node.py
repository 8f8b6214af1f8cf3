"""The agent that runs a broker."""

from __future__ import annotations

import os
from contextlib import ExitStack

from chronoline.node.broker_service import BrokerService
from chronoline.runtime.gc_tuning import search_seldom
from chronoline.stores.factory import open_store
from chronoline_bench.harness.agent import Figures


class Agent:
    def __init__(self) -> None:
        self._store = ExitStack()
        self._node: BrokerService | None = None

    async def serve(self, url: str) -> Figures:
        """Starts a broker on a store; returns its port and process id."""
        self._node = BrokerService(
            self._store.enter_context(open_store(url)), grpc_address=("127.0.0.1", 0)
        )
        await self._node.start()
        search_seldom()  # as `chronoline up` does
        assert self._node.grpc is not None
        return {"port": self._node.grpc.port, "pid": os.getpid()}

    async def close(self) -> None:
        if self._node is not None:
            await self._node.stop()
        self._store.close()
