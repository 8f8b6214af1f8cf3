"""A consumer process that a test can freeze: it prints its message and acks it on request."""

from __future__ import annotations

import asyncio
import sys

from chronoline.client.aio import AsyncClient
from chronoline.core.errors import Refused


async def main(address: str) -> None:
    async with AsyncClient(address) as client:
        async for lease in client.consume("work", consumer="frozen", lease=0.5, prefetch=1):
            print(lease.id, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            try:
                await lease.ack()
            except Refused as error:
                print(error.outcomes[0].refusal, flush=True)
            else:
                print("acked", flush=True)
            return


asyncio.run(main(sys.argv[1]))
