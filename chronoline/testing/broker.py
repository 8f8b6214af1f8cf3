"""For tests of code that uses the SDK: a broker in this process.

The pytest plugin imports this module in every project that has Chronoline installed: slow imports wait until
a broker starts.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from chronoline.runtime.extras import needs

if TYPE_CHECKING:
    import asyncio

    from chronoline.broker.node import Node
    from chronoline.stores.contract import Store

Result = TypeVar("Result")


class LocalBroker:
    """A broker on a store, in a thread of this process, on a port of its own: from `start` to `stop`.

    The store is its owner's to close, after that.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        """`options` are those of `Node`."""
        self._store = store
        self._options = options
        self._node: Node | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """Where it listens: what `Client` takes, and `CHRONOLINE_ADDRESS`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Where it listened before, if it was stopped."""
        _run(self._start())
        return self

    async def _start(self) -> None:
        with needs("a broker", "server"):
            from chronoline.broker.node import Node  # noqa: PLC0415 - see above

        node = Node(self._store, **self._options)
        await node.start("127.0.0.1", self._port)
        assert node.grpc is not None
        self._node, self._port = node, node.grpc.port

    def stop(self) -> None:
        """Clients are told to go, and wait until it is started again. May be called twice."""
        node, self._node = self._node, None
        if node is not None:
            _run(node.stop())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


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
