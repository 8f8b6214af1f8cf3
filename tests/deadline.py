"""A deadline for what no signal tells of: a scene, another process, or a store that can only be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_PATIENCE_S = 60
_ASK_EVERY_S = 0.02


def run_scene(scene: Callable[[], Awaitable[None]]) -> None:
    """Runs a scene to its end; one that hangs fails."""

    async def bounded() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await scene()

    asyncio.run(bounded())


async def until(holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Returns when it holds; a test that waits in vain fails."""
    async with asyncio.timeout(_PATIENCE_S):
        while not await _answer(holds):
            await asyncio.sleep(_ASK_EVERY_S)  # nothing tells of it


async def _answer(holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> bool:
    found = holds()
    return found if isinstance(found, bool) else await found
