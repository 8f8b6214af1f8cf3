"""A broker in this process, for tests of code that uses the SDK.

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
    """A broker on a store, in a thread of this process, on its own port: from `start` to `stop`.

    The caller closes the store after that.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        """`options` are those of `BrokerService`."""
        self._store = store
        self._options = options
        self._node: BrokerService | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """The address for `Client` and `CHRONOLINE_ADDRESS`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts the broker; after a stop, on the same port."""
        if self._node is None:
            _run(self._start())

    async def _start(self) -> None:
        with needs("a broker", "server"):
            from chronoline.node.broker_service import (  # noqa: PLC0415 - see above
                BrokerService,
            )

        at = ("127.0.0.1", self._port)
        node = BrokerService(self._store, grpc_address=at, **self._options)
        await node.start()
        assert node.grpc is not None
        self._node, self._port = node, node.grpc.port

    def stop(self) -> None:
        """Disconnects the clients, which wait until it is started again. May be called twice."""
        node, self._node = self._node, None
        if node is not None:
            _run(node.stop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all brokers, never closed: gRPC wakes every loop that it has used."""
    import asyncio  # noqa: PLC0415 - see above

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="chronoline-broker", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio  # noqa: PLC0415 - see above

    return asyncio.run_coroutine_threadsafe(work, _loop()).result()
