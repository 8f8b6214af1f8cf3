"""Containment: what fails is told, counted and started anew, and nothing else notices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chronoline.broker.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_REST_S = 0.2
"""Before a part that failed is started anew, so that one that always fails does not fill the log."""


def contain(
    what: str, work: Callable[[], Awaitable[None]], metrics: BrokerMetrics, *, topic: str = ""
) -> asyncio.Task[None]:
    """Runs `work` until it returns or is cancelled, again whenever it raises."""
    name = f"{what} for topic {topic!r}" if topic else what

    async def run() -> None:
        while True:
            try:
                await work()
            except Exception:
                metrics.failed(what, topic)
                logger.exception("%s failed; it starts anew", name)
                await asyncio.sleep(_REST_S)
            else:
                return

    return asyncio.create_task(run(), name=name)
