"""For tests of code that uses the SDK: a broker in this process.

The pytest plugin imports this module in every project that has Chronoline installed: slow imports wait until
a broker starts.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from chronoline.runtime.extras import needs
from chronoline.runtime.service import Service

if TYPE_CHECKING:
    import asyncio

    from chronoline.node.broker_service import BrokerService
    from chronoline.stores.contract import Store

Result = TypeVar("Result")


class LocalBroker(Service):
    """A broker on a store, in a thread of this process, on a port of its own: from `start` to `stop`.

    The store is its owner's to close, after that.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        """`options` are those of `BrokerService`."""
        self._store = store
        self._options = options
        self._node: BrokerService | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """Where it listens: what `Client` takes, and `CHRONOLINE_ADDRESS`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listens where it listened before, if it was stopped."""
        _run(self._start())

    async def _start(self) -> None:
        with needs("a broker", "server"):
            from chronoline.node.broker_service import (  # noqa: PLC0415 - see above
                BrokerService,
            )

        node = BrokerService(self._store, **self._options)
        await node.start("127.0.0.1", self._port)
        assert node.grpc is not None
        self._node, self._port = node, node.grpc.port

    def stop(self) -> None:
        """Clients are told to go, and wait until it is started again. May be called twice."""
        node, self._node = self._node, None
        if node is not None:
            _run(node.stop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all brokers, never closed: gRPC wakes every loop that it ever met."""
    import asyncio  # noqa: PLC0415 - see above

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="chronoline-broker", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio  # noqa: PLC0415 - see above

    return asyncio.run_coroutine_threadsafe(work, _loop()).result()
