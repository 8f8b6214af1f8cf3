"""A broker as a process: `python -m chronoline_bench.brokers.node STORE_URL`.

It says `ready`, its port and its pid. SIGTERM ends it, in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from chronoline.node.broker_service import BrokerService
from chronoline.runtime.gc_tuning import search_seldom
from chronoline.stores.factory import open_store


async def serve(url: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    with open_store(url) as store:
        node = BrokerService(store)
        await node.start("127.0.0.1", 0)
        search_seldom()  # as `chronoline up` does
        try:
            assert node.grpc is not None
            print("ready", node.grpc.port, os.getpid(), flush=True)
            await stopping.wait()
        finally:
            await node.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(sys.argv[1]))
