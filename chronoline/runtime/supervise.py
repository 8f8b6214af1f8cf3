"""Supervised tasks: a task that fails is logged, counted and started again, without effect on others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_REST_S = 0.2
"""The wait before a restart, so that a task that always fails does not fill the log."""


def supervise(
    what: str,
    work: Callable[[], Awaitable[None]],
    failed: Callable[[str, str], None],
    *,
    topic: str = "",
) -> asyncio.Task[None]:
    """Runs `work` until it returns or is cancelled, again whenever it raises.

    `failed` counts a failure: it is called with `what` and the topic.
    """
    name = f"{what} for topic {topic!r}" if topic else what

    async def run() -> None:
        while True:
            try:
                await work()
            except Exception:
                failed(what, topic)
                logger.exception("%s failed; restarting it", name)
                await asyncio.sleep(_REST_S)
            else:
                return

    return asyncio.create_task(run(), name=name)
