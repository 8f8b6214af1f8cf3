"""Work at a rate, and what disturbs it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator


async def paced(count: int, rate: float, *, start: int = 0) -> AsyncIterator[int]:
    """Places from `start` on, each when it is its turn."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for place in range(start, count):
        while (wait_s := started_s + place / rate - loop.time()) > 0:
            await asyncio.sleep(wait_s)  # until its turn, at this rate
        yield place


def forget_the_past() -> None:
    """The garbage collector passes over what is there already."""
    gc.collect()
    gc.freeze()
